"""Compare with another tensor by the cosine of the angle."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from probes.component import CompareFn, TensorComparison
from probes.signature import FLOATS, Signature


class Cosine(TensorComparison):
    """Computes the cosine of the angle between the value and the tensor that `against` names, over the given axes, or all.

    It is computed in float64 and errs by less than 2**-39, then rounded to float32, or kept as float64 for float64. It is NaN if one of the
    two tensors is zero.
    """

    kind: Literal["cosine"] = "cosine"
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

        from probes.transforms.kernels.pairs import cosine, over_axes

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        return over_axes(cosine, signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0)), dtype)
