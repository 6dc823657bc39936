"""Subtract another tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from probes.component import CompareFn, TensorComparison
from probes.signature import COMPLEX, FLOATS, Signature
from probes.transforms.kernels.pairs import same_shape

if TYPE_CHECKING:
    from torch import Tensor


class Subtraction(TensorComparison):
    """Subtracts from the value the tensor that `against` names.

    Each difference is rounded once, to the dtype of the value, or to float32 for float16 and bfloat16. Floats of two dtypes are compared in
    the one that holds both; a real tensor is never compared with a complex one.
    """

    kind: Literal["difference"] = "difference"

    def out(self, signature: Signature) -> Signature:
        """Predict the same axes, and the dtype of the difference.

        Raises:
            SignatureError: the value is neither float nor complex.
        """
        signature.require((*FLOATS, *COMPLEX[1:]), "put a cast to float32 before it")
        return signature.replace(dtype=signature.dtype if (signature.dtype or "").startswith("complex") else signature.widened)

    def compare(self, signature: Signature) -> CompareFn:
        """Subtract in the widened dtype."""
        import torch

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")

        def work(value: Tensor, other: Tensor) -> Tensor:
            same_shape(value, other)
            return value.to(dtype) - other.to(dtype)

        return work
