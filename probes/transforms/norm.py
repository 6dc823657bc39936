"""Store norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, REAL_OF, Signature

if TYPE_CHECKING:
    from torch import Tensor


class Norm(Transform):
    """Reduces the given axes, or all of them, to a norm.

    `l2` is the root of the sum of squares, `l1` the sum of magnitudes, `linf` the largest magnitude, `l0` the number of
    elements that are not zero. The norm of no elements is 0.
    """

    kind: Literal["norm"] = "norm"
    order: Literal["l0", "l1", "l2", "linf"] = Field(default="l2", description="Norm to compute.")
    dims: tuple[str | int, ...] | None = Field(
        default=None, min_length=1, description="Names or numbers of the axes to reduce; default: all."
    )

    def out(self, signature: Signature) -> Signature:
        """The axes that are left.

        Raises:
            SignatureError: there is no such axis, or the value is neither float nor complex.
        """
        signature.require((*FLOATS, *REAL_OF), "put a cast to float32 before it")
        return signature.without(self.dims).replace(dtype=REAL_OF.get(signature.dtype or "", signature.dtype))

    def begin(self, signature: Signature) -> TransformFn:
        """One `torch.linalg.vector_norm`."""
        import torch

        axes = signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0))
        order = float(self.order.removeprefix("l"))

        def work(tensor: Tensor) -> Tensor:
            values = tensor.abs() if tensor.is_complex() else tensor  # torch's own way for complex ones warns where p is 0
            if not tensor.numel():
                return values.sum(axes)  # torch knows no largest magnitude of nothing
            norm: Tensor = torch.linalg.vector_norm(values, order, dim=axes)
            return norm

        return work
