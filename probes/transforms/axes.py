"""The axes that an einops pattern names on either side of its arrow."""

from __future__ import annotations

from types import EllipsisType
from typing import NamedTuple

Axis = tuple[str, ...]  # one axis, made of the names it is composed of; a single name where it is not composed
Item = Axis | EllipsisType  # the ellipsis stands for any number of axes; inside parentheses it is the name `...`


class PatternError(ValueError):
    """A pattern is not written in the language of einops; the message says what is wrong with it."""


class Pattern(NamedTuple):
    """Both sides of a pattern, such as `b (h w) -> b h w`.

    Attributes:
        left: the axes of the input.
        right: the axes of the result.
    """

    left: tuple[Item, ...]
    right: tuple[Item, ...]


def parse(pattern: str) -> Pattern:
    """Read a pattern.

    Raises:
        PatternError: there is not one arrow, parentheses do not match, a name is no name or stands twice on a side.
    """
    sides = pattern.split("->")
    if len(sides) != 2:
        raise PatternError(f"`{pattern}` has {len(sides) - 1} arrows; a pattern is `axes before -> axes after`")
    left, right = map(_side, sides)
    if any(item is not ... and "..." in item for item in left):
        raise PatternError(f"`...` stands inside parentheses left of the arrow of `{pattern}`; only axes with names can be split")
    return Pattern(left, right)


def names(side: tuple[Item, ...]) -> tuple[str, ...]:
    """Every elementary axis of one side, in order."""
    return tuple(name for item in side for name in (("...",) if item is ... else item))


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
            raise PatternError(f"the parentheses of `{text.strip()}` do not match")
        elif group is not None:
            group.append(_name(word))
        elif word == "...":
            axes.append(...)
        else:
            axes.append(() if word == "1" else (_name(word),))
    if group is not None:
        raise PatternError(f"the parentheses of `{text.strip()}` do not match")
    return _distinct(tuple(axes))


def _name(word: str) -> str:
    if word != "..." and not (word.isidentifier() and word.strip("_") == word):
        raise PatternError(f"`{word}` is not the name of an axis: letters, digits and inner underscores, or `...`, or `1`")
    return word


def _distinct(side: tuple[Item, ...]) -> tuple[Item, ...]:
    for name in (found := names(side)):
        if found.count(name) > 1:
            raise PatternError(f"the axis `{name}` stands twice on one side of the pattern")
    return side
