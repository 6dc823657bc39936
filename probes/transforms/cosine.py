"""Compare with another tensor by the cosine of the angle."""

from __future__ import annotations

from typing import Literal

from probes.component import CompareFn
from probes.signature import Signature
from probes.transforms.kernels.pair_number import PairNumber


class Cosine(PairNumber):
    """Computes the cosine of the angle between the value and the tensor that `against` names, over the given axes, or all.

    It is computed in float64 and errs by less than 2**-39, then rounded to float32, or kept as float64 for float64. It is NaN if one of the
    two tensors is zero.
    """

    kind: Literal["cosine"] = "cosine"

    def compare(self, signature: Signature) -> CompareFn:
        """The kernel of `probes.transforms.kernels.pairs`."""
        import torch

        from probes.transforms.kernels.pairs import cosine, over_axes

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        return over_axes(cosine, self.reduced_axes(signature), dtype)
