"""Parse einops patterns, and predict the axes of their results."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from types import EllipsisType
from typing import NamedTuple

from probes.signature import Signature, SignatureError

Axis = tuple[str, ...]  # one axis, made of the names it is composed of; a single name where it is not composed
Item = Axis | EllipsisType  # the ellipsis matches any number of axes; inside parentheses it is the name `...`


class EinopsPatternError(ValueError):
    """A text is not a valid einops pattern; the message gives the reason."""


class EinopsPattern(NamedTuple):
    """Both sides of a pattern, such as `b (h w) -> b h w`.

    Attributes:
        left: the axes of the input.
        right: the axes of the result.
    """

    left: tuple[Item, ...]
    right: tuple[Item, ...]


def parse(pattern: str) -> EinopsPattern:
    """Parse a pattern.

    Raises:
        EinopsPatternError: there is not exactly one arrow, parentheses do not match, a name is not valid or occurs twice on a side.
    """
    sides = pattern.split("->")
    if len(sides) != 2:
        raise EinopsPatternError(f"`{pattern}` has {len(sides) - 1} arrows; a pattern is `axes before -> axes after`")
    left, right = map(_side, sides)
    if any(item is not ... and "..." in item for item in left):
        raise EinopsPatternError(f"`...` is inside parentheses left of the arrow of `{pattern}`; only axes with names can be split")
    return EinopsPattern(left, right)


def names(side: tuple[Item, ...]) -> tuple[str, ...]:
    """Every elementary axis of one side, in order."""
    return tuple(name for item in side for name in (("...",) if item is ... else item))


def bind(text: str, given: dict[str, int], signature: Signature) -> Signature:
    """Predict the result of a pattern: shape, names and labels of the axes right of the arrow.

    Args:
        text: a pattern that `parse` takes.
        given: sizes of elementary axes that do not follow from the value.
        signature: what is known about the value.

    Raises:
        SignatureError: the value has another number of axes, other names, or sizes that do not fit.
    """
    left, right = parse(text)
    if signature.ndim is None and "..." in names(right):
        return Signature(signature.dtype)
    spread = _spread(text, left, signature)
    sizes = _solve(text, _opened(left, spread), given, signature)
    inner = names(tuple(spread))
    flat = [tuple(n for name in axis for n in (inner if name == "..." else (name,))) for axis in _opened(right, spread)]
    shape = tuple(_joined(sizes[name] for name in axis) for axis in flat)
    kept = {axis[0] for axis in _opened(left, spread) if len(axis) == 1}  # the axes with labels: the others are parts of axes
    labels = [signature.coords.get(axis[0]) if len(axis) == 1 and axis[0] in kept else None for axis in flat]
    return Signature.of_axes(signature.dtype, shape, [("_".join(axis) or "unit", known) for axis, known in zip(flat, labels, strict=True)])


def _opened(side: tuple[Item, ...], spread: list[Axis]) -> list[Axis]:
    """One side with the axes that the ellipsis matches."""
    return [axis for item in side for axis in (spread if item is ... else [item])]


def _spread(text: str, left: tuple[Item, ...], signature: Signature) -> list[Axis]:
    """The axes that the ellipsis matches, by name or by number."""
    ndim = signature.ndim
    if ndim is None:
        return []
    if ... not in left:
        if ndim != len(left):
            raise SignatureError(f"the pattern `{text}` names {len(left)} axes, but the value has {ndim}")
        return []
    if ndim < len(left) - 1:
        raise SignatureError(f"the pattern `{text}` names at least {len(left) - 1} axes, but the value has {ndim}")
    first = left.index(...)
    own = signature.dims or tuple(f"dim_{at}" for at in range(ndim))
    return [(name,) for name in own[first : first + ndim - len(left) + 1]]


def _solve(text: str, axes: list[Axis], given: dict[str, int], signature: Signature) -> dict[str, int | None]:
    """The size of every elementary axis, as far as it is known."""
    _check_names(text, axes, signature.dims)
    sizes: dict[str, int | None] = dict.fromkeys(names(tuple(axes))) | given
    for axis, size in zip(axes, signature.shape or (None,) * len(axes), strict=True):
        unknown = [name for name in axis if sizes[name] is None]
        known = prod(sizes[name] or 1 for name in axis)
        if size is not None and (size != known if not unknown else size % known):
            raise SignatureError(f"axis `{' '.join(axis) or '1'}` of `{text}` cannot have size {size}")
        if size is not None and len(unknown) > 1:
            raise SignatureError(f"the sizes of `{'`, `'.join(unknown)}` cannot both follow from {size}; give one in `sizes`")
        if size is not None and unknown:
            sizes[unknown[0]] = size // known
    return sizes


def _check_names(text: str, axes: list[Axis], dims: tuple[str, ...] | None) -> None:
    """Refuse a pattern that uses the name of one axis for another."""
    for axis, dim in zip(axes, dims or (), strict=False):
        if len(axis) == 1 and axis[0] != dim and axis[0] in (dims or ()):
            raise SignatureError(f"the pattern `{text}` calls `{axis[0]}` the axis that is named `{dim}`")


def _joined(sizes: Iterable[int | None]) -> int | None:
    """The size of a joined axis, or None if a part is not known."""
    known = [*sizes]
    return None if None in known else prod(size for size in known if size is not None)


def _side(text: str) -> tuple[Item, ...]:
    axes: list[Item] = []
    group: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").replace("…", "...").split():
        if word == "(" and group is None:
            group = []
        elif word == ")" and group is not None:
            axes.append(tuple(group))
            group = None
        elif word in "()":
            raise EinopsPatternError(f"the parentheses of `{text.strip()}` do not match")
        elif group is not None:
            group.append(_name(word))
        elif word == "...":
            axes.append(...)
        else:
            axes.append(() if word == "1" else (_name(word),))
    if group is not None:
        raise EinopsPatternError(f"the parentheses of `{text.strip()}` do not match")
    return _distinct(tuple(axes))


def _name(word: str) -> str:
    if word != "..." and not (word.isidentifier() and word.strip("_") == word):
        raise EinopsPatternError(f"`{word}` is not the name of an axis: letters, digits and inner underscores, or `...`, or `1`")
    return word


def _distinct(side: tuple[Item, ...]) -> tuple[Item, ...]:
    for name in (found := names(side)):
        if found.count(name) > 1:
            raise EinopsPatternError(f"the axis `{name}` occurs twice on one side of the pattern")
    return side
