"""Reduce axes to one number each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, INTEGERS, Signature, SignatureError
from probes.transforms.kernels.mask import Mask, masked, require_reduced

if TYPE_CHECKING:
    import torch
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
SUMMED = ("mean", "sum", "std", "norm")


class Reduce(Transform):
    """Reduces the given axes, or all of them, to one number.

    `std` divides by the number of elements (population), `norm` is the root of the sum of squares, `any` and `all` say whether
    elements are not zero. Without elements, mean, std, max and min are NaN. A NaN makes sum, mean, std, norm, max and min NaN.

    Sums of floats are computed in float64 without overflow or underflow inside, then rounded to float32, or kept as float64 for
    float64: `norm` and `std` to 2**-41 of themselves, `sum` to 2**-41 of the sum of magnitudes, `mean` to that by the number of elements.
    Sums of integers are exact int64; where the sum of int64 or uint64 elements is outside of int64, the capture fails.
    """

    kind: Literal["reduce"] = "reduce"
    op: Op = Field(description="Reduction to compute.")
    dims: tuple[str | int, ...] | None = Field(
        default=None, min_length=1, description="Names or numbers of the axes to reduce; default: all."
    )
    mask: Mask = None

    def out(self, signature: Signature) -> Signature:
        """Predict the axes that are not reduced.

        Raises:
            SignatureError: there is no such axis, the dtype cannot be reduced so, or a mask has axes that remain.
        """
        require_reduced(signature, self.mask, self.dims)
        signature.require(TAKEN[self.op], f"for `op: {self.op}` put a cast to float32 before it")
        left = signature.without(self.dims).replace(dtype=self._dtype(signature))
        if self.op in ("max", "min") and signature.dtype not in FLOATS and signature.nbytes == 0 and left.nbytes != 0:
            raise SignatureError(f"`{self.op}` of zero elements does not exist, and `{signature.dtype}` has no NaN for this case")
        return left

    def begin(self, signature: Signature) -> TransformFn:
        """Choose the reduction."""
        axes = signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0))
        return masked(self._reduction(signature, axes), self.mask, axes)

    def _reduction(self, signature: Signature, axes: tuple[int, ...]) -> TransformFn:
        import torch

        if self.op in ("max", "min"):
            return _or_nan(torch.amax if self.op == "max" else torch.amin, axes)
        if self.op in ("any", "all"):
            test = torch.any if self.op == "any" else torch.all
            return lambda tensor: test(tensor != 0, dim=axes)
        if signature.dtype in COUNTED:
            from probes.transforms.kernels.exact_sum import exact_sum

            return lambda tensor: exact_sum(tensor, axes)
        return _summed(self.op, axes, getattr(torch, self.out(signature).dtype or ""))

    def _dtype(self, signature: Signature) -> str | None:
        if self.op in ("any", "all"):
            return "bool"
        if self.op == "sum" and signature.dtype in COUNTED:
            return "int64"
        return signature.widened if self.op in SUMMED else signature.dtype


def _summed(op: str, axes: tuple[int, ...], dtype: torch.dtype) -> TransformFn:
    """A reduction of floats by the summation kernel."""
    from probes.transforms.kernels.summation import as_rows, mean, root_of_squares, standard_deviation, total

    kernels: dict[str, Callable[[Tensor], Tensor]] = {"sum": total, "mean": mean, "std": standard_deviation, "norm": root_of_squares}
    kernel = kernels[op]

    def work(tensor: Tensor) -> Tensor:
        left = [size for axis, size in enumerate(tensor.shape) if axis not in axes]
        return kernel(as_rows(tensor, axes)).to(dtype).reshape(left)

    return work


def _or_nan(function: Callable[..., Tensor], axes: tuple[int, ...]) -> TransformFn:
    """The reduction; of no elements NaN, instead of torch's exception."""

    def work(tensor: Tensor) -> Tensor:
        if all(tensor.shape[axis] for axis in axes):
            return function(tensor, dim=axes)
        if not tensor.is_floating_point():
            raise SignatureError(f"the largest or smallest of zero elements does not exist, and {tensor.dtype} has no NaN for this case")
        return tensor.sum(axes) + float("nan")

    return work
