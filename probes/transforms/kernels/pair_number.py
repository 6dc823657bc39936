"""The common part of comparisons that reduce two tensors to a number."""

from __future__ import annotations

from pydantic import Field

from probes.component import TensorComparison
from probes.signature import FLOATS, Signature


class PairNumber(TensorComparison):
    """Computes a number of the value and of the tensor that `against` names, over the given axes, or all."""

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

    def reduced_axes(self, signature: Signature) -> tuple[int, ...]:
        """The numbers of the axes that are reduced."""
        return tuple(signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0)))
