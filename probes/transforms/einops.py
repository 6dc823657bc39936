"""Rearrange or reduce axes with an einops pattern."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, INTEGERS, Signature
from probes.transforms.kernels.einops_pattern import EinopsPatternError, bind, names, parse

COUNTED = ("bool", *INTEGERS)
TAKEN = {
    "mean": FLOATS,
    "sum": (*COUNTED, *FLOATS),
    "prod": (*COUNTED, *FLOATS),
    "max": ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS),
    "min": ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS),
}


class Einops(Transform):
    """Applies an einops pattern: moves, splits and merges axes; with `reduction`, also reduces the axes that are missing in the result.

    The names to the right of the arrow become the names of the axes; a merged axis `(h w)` is named `h_w`.
    """

    kind: Literal["einops"] = "einops"
    pattern: str = Field(description="The pattern, such as `batch channel y x -> batch channel`.")
    reduction: Literal["mean", "sum", "max", "min", "prod"] | None = Field(
        default=None, description="Reduction of the axes that are missing to the right of the arrow."
    )
    sizes: dict[str, PositiveInt] = Field(default={}, description="Sizes of axes for a split such as `(h w) -> h w`, such as {h: 8}.")

    @model_validator(mode="after")
    def _pattern_is_sound(self) -> Einops:
        try:
            left, right = map(names, parse(self.pattern))
        except EinopsPatternError as error:
            raise PydanticCustomError("einops_pattern", "{reason}", {"reason": str(error)}) from None
        gone = [name for name in left if name not in right]
        checks = {
            "`{names}` is only to the right of the arrow; `einops` cannot add axes": [name for name in right if name not in left],
            "`{names}` is missing to the right of the arrow; add a `reduction`: mean, sum, max, min or prod": []
            if self.reduction
            else gone,
            "`sizes` has `{names}`, but the pattern does not": [name for name in self.sizes if name not in left],
            "`sizes` cannot contain `{names}`, a reserved word of the einops library; rename the axis": [
                name for name in self.sizes if name in ("tensor", "pattern", "reduction")
            ],
        }
        for message, found in checks.items():
            if found:
                raise PydanticCustomError("einops_axes", message, {"names": "`, `".join(found)})
        if self.reduction and not gone:
            raise PydanticCustomError("einops_reduction", "`reduction` has no effect: every axis is also to the right of the arrow")
        return self

    def out(self, signature: Signature) -> Signature:
        """The axes right of the arrow.

        Raises:
            SignatureError: the value has another number of axes, sizes that do not fit, or a dtype the reduction cannot take.
        """
        if self.reduction:
            signature.require(TAKEN[self.reduction], f"for `reduction: {self.reduction}` put a cast to float32 before it")
        found = bind(self.pattern, self.sizes, signature)
        return found.replace(dtype="int64" if self._widens(signature) else signature.dtype)

    def begin(self, signature: Signature) -> TransformFn:
        """One call of the einops library, which caches the parsed pattern."""
        import einops

        pattern, reduction, sizes = self.pattern, self.reduction, self.sizes
        if reduction is None:
            return lambda tensor: einops.rearrange(tensor, pattern, **sizes)
        if self._widens(signature):
            return lambda tensor: einops.reduce(tensor, pattern, reduction, **sizes).long()  # an ellipsis without axes reduces nothing
        return lambda tensor: einops.reduce(tensor, pattern, reduction, **sizes)

    def _widens(self, signature: Signature) -> bool:
        return self.reduction in ("sum", "prod") and signature.dtype in COUNTED
