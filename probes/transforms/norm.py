"""Store norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, REAL_OF, Signature
from probes.transforms.kernels.mask import Mask, masked, require_reduced

if TYPE_CHECKING:
    from torch import Tensor


class Norm(Transform):
    """Reduces the given axes, or all of them, to a norm.

    `l2` is the root of the sum of squares, `l1` the sum of magnitudes, `linf` the largest magnitude, `l0` the number of elements
    that are not zero. The norm of no elements is 0; with a NaN it is NaN, except `l0`. It is computed in float64 without overflow
    or underflow, to 2**-41 of itself (`l0` and `linf` exactly), then rounded to float32, or kept as float64 for float64 and complex128.
    """

    kind: Literal["norm"] = "norm"
    order: Literal["l0", "l1", "l2", "linf"] = Field(default="l2", description="Norm to compute.")
    dims: tuple[str | int, ...] | None = Field(
        default=None, min_length=1, description="Names or numbers of the axes to reduce; default: all."
    )
    mask: Mask = None

    def out(self, signature: Signature) -> Signature:
        """Predict the axes that are not reduced.

        Raises:
            SignatureError: there is no such axis, the value is neither float nor complex, or a mask has axes that remain.
        """
        require_reduced(signature, self.mask, self.dims)
        signature.require((*FLOATS, *REAL_OF), "put a cast to float32 before it")
        return signature.without(self.dims).replace(dtype=REAL_OF.get(signature.dtype or "", signature.widened))

    def begin(self, signature: Signature) -> TransformFn:
        """The kernel of `probes.transforms.kernels.summation`."""
        import torch

        from probes.transforms.kernels.norms import NORMS
        from probes.transforms.kernels.summation import as_rows

        axes = signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0))
        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        norm = NORMS[self.order]

        def work(tensor: Tensor) -> Tensor:
            left = [size for axis, size in enumerate(tensor.shape) if axis not in axes]
            return norm(as_rows(tensor, axes)).to(dtype).reshape(left)

        return masked(work, self.mask, axes)
