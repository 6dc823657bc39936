"""Rearrange or reduce axes with an einops pattern."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Literal

from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Transform, Work
from probes.signature import FLOATS, INTEGERS, Signature, SignatureError
from probes.transforms.axes import Axis, Item, Pattern, PatternError, names, parse

COUNTED = ("bool", *INTEGERS)
TAKEN = {
    "mean": FLOATS,
    "sum": (*COUNTED, *FLOATS),
    "prod": (*COUNTED, *FLOATS),
    "max": ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS),
    "min": ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS),
}

Sizes = dict[str, int | None]


class Einops(Transform):
    """Applies an einops pattern: without `reduction` it moves, splits and joins axes, with one it also reduces those that vanish.

    The names right of the arrow become the names of the axes; those of a joined axis `(h w)` are joined to `h_w`.
    """

    kind: Literal["einops"] = "einops"
    pattern: str = Field(description="The pattern, such as `batch channel y x -> batch channel`.")
    reduction: Literal["mean", "sum", "max", "min", "prod"] | None = Field(
        default=None, description="How axes that do not stand right of the arrow are reduced."
    )
    sizes: dict[str, PositiveInt] = Field(default={}, description="Sizes of axes that the value alone does not tell.")

    @model_validator(mode="after")
    def _pattern_is_sound(self) -> Einops:
        try:
            left, right = map(names, parse(self.pattern))
        except PatternError as error:
            raise PydanticCustomError("einops_pattern", "{reason}", {"reason": str(error)}) from None
        gone = [name for name in left if name not in right]
        checks = {
            "`{names}` stands right of the arrow only; `einops` here makes no new axes": [name for name in right if name not in left],
            "`{names}` vanishes; name a `reduction`: mean, sum, max, min or prod": [] if self.reduction else gone,
            "`sizes` names `{names}`, which the pattern does not": [name for name in self.sizes if name not in left],
        }
        for message, found in checks.items():
            if found:
                raise PydanticCustomError("einops_axes", message, {"names": "`, `".join(found)})
        if self.reduction and not gone:
            raise PydanticCustomError("einops_reduction", "`reduction` has no effect: every axis stands right of the arrow too")
        return self

    def out(self, signature: Signature) -> Signature:
        """The axes right of the arrow.

        Raises:
            SignatureError: the value has another number of axes, sizes that do not fit, or a dtype the reduction cannot take.
        """
        pattern = parse(self.pattern)
        if self.reduction:
            signature.require(TAKEN[self.reduction], f"for `reduction: {self.reduction}` put a cast to float32 before it")
        dtype = "int64" if self._widens(signature) else signature.dtype
        if signature.ndim is None:
            return Signature(dtype, *self._unknown(pattern))
        spread = self._spread(pattern.left, signature)
        sizes = self._solve(pattern.left, signature, spread)
        right = [axis for item in pattern.right for axis in (spread if item is ... else [item])]
        flat = [tuple(n for name in axis for n in (names(tuple(spread)) if name == "..." else (name,))) for axis in right]
        dims = tuple("_".join(axis) or "unit" for axis in flat)
        shape = tuple(_product(sizes[name] for name in axis) for axis in flat)
        return Signature(dtype, shape, dims, {n: c for n, c in signature.coords.items() if n in dims})

    def begin(self, signature: Signature) -> Work:
        """One call of the einops library, whose reading of the pattern is kept between calls."""
        import einops

        self.out(signature)
        pattern, reduction, sizes = self.pattern, self.reduction, self.sizes
        if reduction is None:
            return lambda tensor: einops.rearrange(tensor, pattern, **sizes)
        if self._widens(signature):
            return lambda tensor: einops.reduce(tensor, pattern, reduction, **sizes).long()  # an ellipsis of no axes adds nothing up
        return lambda tensor: einops.reduce(tensor, pattern, reduction, **sizes)

    def _widens(self, signature: Signature) -> bool:
        return self.reduction in ("sum", "prod") and signature.dtype in COUNTED

    @staticmethod
    def _unknown(pattern: Pattern) -> tuple[tuple[int | None, ...] | None, tuple[str, ...] | None]:
        """Shape and names of the result of a value of unknown rank."""
        if "..." in names(pattern.right):
            return None, None
        return (None,) * len(pattern.right), tuple("_".join(item) or "unit" for item in pattern.right if item is not ...)

    def _spread(self, left: tuple[Item, ...], signature: Signature) -> list[Axis]:
        """The axes that the ellipsis stands for, by the names they have or by their numbers."""
        ndim = signature.ndim or 0
        if ... not in left:
            if ndim != len(left):
                raise SignatureError(f"the pattern `{self.pattern}` names {len(left)} axes, but the value has {ndim}")
            return []
        if ndim < len(left) - 1:
            raise SignatureError(f"the pattern `{self.pattern}` names at least {len(left) - 1} axes, but the value has {ndim}")
        first = left.index(...)
        own = signature.dims or tuple(f"dim_{at}" for at in range(ndim))
        return [(name,) for name in own[first : first + ndim - len(left) + 1]]

    def _solve(self, left: tuple[Item, ...], signature: Signature, spread: list[Axis]) -> Sizes:
        """The size of every elementary axis, as far as it is known."""
        axes = [axis for item in left for axis in (spread if item is ... else [item])]
        self._check_names(axes, signature.dims)
        sizes: Sizes = dict.fromkeys(names(tuple(axes))) | self.sizes
        for axis, size in zip(axes, signature.shape or (None,) * len(axes), strict=True):
            unknown = [name for name in axis if sizes[name] is None]
            known = prod(sizes[name] or 1 for name in axis)
            if size is not None and (size != known if not unknown else size % known):
                raise SignatureError(f"axis `{' '.join(axis) or '1'}` of `{self.pattern}` cannot have size {size}")
            if size is not None and len(unknown) > 1:
                raise SignatureError(f"the sizes of `{'`, `'.join(unknown)}` cannot both follow from {size}; give one in `sizes`")
            if size is not None and unknown:
                sizes[unknown[0]] = size // known
        return sizes

    def _check_names(self, axes: list[Axis], dims: tuple[str, ...] | None) -> None:
        """Refuse a pattern that gives a name of one axis to another."""
        for axis, dim in zip(axes, dims or (), strict=False):
            if len(axis) == 1 and axis[0] != dim and axis[0] in (dims or ()):
                raise SignatureError(f"the pattern `{self.pattern}` calls `{axis[0]}` the axis that is named `{dim}`")


def _product(sizes: Iterable[int | None]) -> int | None:
    """The size of a joined axis, or None where a part is not known."""
    known = [*sizes]
    return None if None in known else prod(size for size in known if size is not None)
