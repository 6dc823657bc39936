"""Store the entropy of distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, Signature

if TYPE_CHECKING:
    from torch import Tensor


class Entropy(Transform):
    """Reduces an axis that holds a distribution, such as the keys of an attention map, to its Shannon entropy in nats.

    It is computed in float64, to 2**-40 of the sum of magnitudes, and stored as float32, or float64 for float64. Probabilities
    are not normalized to a sum of 1.
    """

    kind: Literal["entropy"] = "entropy"
    dim: str | int = Field(default=-1, description="Name or number of the axis.")
    of: Literal["probabilities", "logits"] = Field(
        default="probabilities", description="Content of the axis; for logits, the softmax is computed first."
    )

    def out(self, signature: Signature) -> Signature:
        """Predict the axes that remain.

        Raises:
            SignatureError: there is no such axis, or the value is not of floats.
        """
        signature.require(FLOATS, "put a cast to float32 before it")
        return signature.without((self.dim,)).replace(dtype=signature.widened)

    def begin(self, signature: Signature) -> TransformFn:
        """The sum of `torch.special.entr`."""
        import torch

        from probes.transforms.kernels.summation import as_rows, total

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        axis = signature.axis(self.dim)

        def work(tensor: Tensor) -> Tensor:
            values = tensor.double()
            parts: Tensor = torch.special.entr(values if self.of == "probabilities" else values.softmax(axis))
            return total(as_rows(parts, (axis,))).to(dtype).reshape([size for at, size in enumerate(tensor.shape) if at != axis])

        return work
