"""Reduce axes to one number each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, INTEGERS, Signature, SignatureError

if TYPE_CHECKING:
    from torch import Tensor

Op = Literal["mean", "sum", "max", "min", "std", "norm", "any", "all"]

ORDERED = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS)
COUNTED = ("bool", *INTEGERS)
TAKEN: dict[str, tuple[str, ...]] = {
    "mean": FLOATS,
    "std": FLOATS,
    "norm": FLOATS,
    "max": ORDERED,
    "min": ORDERED,
    "sum": (*COUNTED, *FLOATS),
    "any": (*COUNTED, *FLOATS),
    "all": (*COUNTED, *FLOATS),
}


class Reduce(Transform):
    """Reduces the given axes, or all of them, to one number.

    `std` divides by the number of elements (population), `norm` is the root of the sum of squares, `any` and `all` test for
    elements that are not zero. Without elements, mean, std, max and min are NaN.
    """

    kind: Literal["reduce"] = "reduce"
    op: Op = Field(description="Reduction to compute.")
    dims: tuple[str | int, ...] | None = Field(
        default=None, min_length=1, description="Names or numbers of the axes to reduce; default: all."
    )

    def out(self, signature: Signature) -> Signature:
        """The axes that are left.

        Raises:
            SignatureError: there is no such axis, or the dtype cannot be reduced so.
        """
        signature.require(TAKEN[self.op], f"for `op: {self.op}` put a cast to float32 before it")
        left = signature.without(self.dims).replace(dtype=self._dtype(signature.dtype))
        if self.op in ("max", "min") and signature.dtype not in FLOATS and signature.nbytes == 0 and left.nbytes != 0:
            raise SignatureError(f"there is no {self.op} of no elements, and `{signature.dtype}` has no NaN to say so")
        return left

    def begin(self, signature: Signature) -> TransformFn:
        """One torch reduction."""
        import torch

        axes = signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0))
        raising: dict[str, Callable[..., Tensor]] = {"max": torch.amax, "min": torch.amin, "std": partial(torch.std, correction=0)}
        if self.op in raising:
            return _or_nan(raising[self.op], axes)
        if self.op in ("any", "all"):
            asked = torch.any if self.op == "any" else torch.all
            return lambda tensor: asked(tensor, dim=axes).bool()  # of uint8 torch makes uint8, from the days before it had bool
        reduction = {"mean": torch.mean, "sum": torch.sum, "norm": torch.linalg.vector_norm}[self.op]
        return lambda tensor: reduction(tensor, dim=axes)

    def _dtype(self, dtype: str | None) -> str | None:
        if self.op in ("any", "all"):
            return "bool"
        return "int64" if self.op == "sum" and dtype in COUNTED else dtype


def _or_nan(function: Callable[..., Tensor], axes: tuple[int, ...]) -> TransformFn:
    """The reduction; of no elements NaN, where torch would raise or warn."""

    def work(tensor: Tensor) -> Tensor:
        if all(tensor.shape[axis] for axis in axes):
            return function(tensor, dim=axes)
        if not tensor.is_floating_point():
            raise SignatureError(f"there is no largest or smallest of no elements, and {tensor.dtype} has no NaN to say so")
        return tensor.sum(axes) + float("nan")

    return work
