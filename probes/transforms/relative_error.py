"""Compare with another tensor by the relative error."""

from __future__ import annotations

from typing import Literal

from probes.component import CompareFn
from probes.signature import Signature
from probes.transforms.kernels.pair_number import PairNumber


class RelativeError(PairNumber):
    """Computes the norm of the difference, divided by the norm of the tensor that `against` names, over the given axes, or all.

    The norms are l2, in float64. The quotient errs by less than 2**-39 of itself, and for float64 by 2**-51 more for the differences; it
    is then rounded to float32, or kept as float64 for float64. It is 0 if both tensors are equal, and infinite if the other is a tensor
    of zeros.
    """

    kind: Literal["relative_error"] = "relative_error"

    def compare(self, signature: Signature) -> CompareFn:
        """The kernel of `probes.transforms.kernels.pairs`."""
        import torch

        from probes.transforms.kernels.pairs import over_axes, relative_error

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        return over_axes(relative_error, self.reduced_axes(signature), dtype)
