"""Compare with another tensor by the relative error."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from probes.component import CompareFn, TensorComparison
from probes.signature import FLOATS, Signature


class RelativeError(TensorComparison):
    """Computes the norm of the difference, divided by the norm of the tensor that `against` names, over the given axes, or all.

    The norms are l2, in float64. The quotient errs by less than 2**-39 of itself, and for float64 by 2**-51 more for the differences; it
    is then rounded to float32, or kept as float64 for float64. It is 0 if both tensors are equal, and infinite beside a tensor of zeros.
    """

    kind: Literal["relative_error"] = "relative_error"
    dims: tuple[str | int, ...] | None = Field(
        default=None, min_length=1, description="Names or numbers of the axes to reduce; default: all."
    )

    def out(self, signature: Signature) -> Signature:
        """Predict the axes that are not reduced.

        Raises:
            SignatureError: there is no such axis, or the value is not of floats.
        """
        signature.require(FLOATS, "put a cast to float32 before it")
        return signature.without(self.dims).replace(dtype=signature.widened)

    def compare(self, signature: Signature) -> CompareFn:
        """The kernel of `probes.transforms.kernels.pairs`."""
        import torch

        from probes.transforms.kernels.pairs import over_axes, relative_error

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        return over_axes(relative_error, signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0)), dtype)
