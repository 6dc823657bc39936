"""Accumulate the similarity of two sets of features over an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Accumulation, CompareFn, TensorComparison
from probes.signature import FLOATS, Signature, SignatureError

if TYPE_CHECKING:
    from torch import Tensor

LABELS = ("cka", "hsic", "hsic_value", "hsic_other", "batches")
LEAST_SAMPLES = 4


class Cka(Accumulation, TensorComparison):
    """Computes the centered kernel alignment (CKA) of the value and the tensor that `against` names, over all batches of an epoch.

    A row is a sample, and all other axes are its features; the two tensors may have other features. With linear kernels, each batch
    gives the unbiased estimates of HSIC of Song et al. (2012), in float64, and CKA is made of their sums, as in Nguyen, Raghu and
    Kornblith (2021). So it does not depend on the size of the batches, which must have 4 samples. It is 1 for features that differ by a
    rotation, a factor and an offset; small data may give less than 0. The stored numbers are `cka`, the mean estimates `hsic`, `hsic_value`
    and `hsic_other`, and `batches`; one capture for each phase at the end of the epoch. A batch takes time with the square of its samples.
    """

    kind: Literal["cka"] = "cka"
    dim: str | int = Field(default=0, description="Name or number of the axis of the samples.")

    def out(self, signature: Signature) -> Signature:
        """Predict the five numbers.

        Raises:
            SignatureError: the value is not of floats, has no such axis, or too few samples.
        """
        signature.require(FLOATS, "put a cast to float32 before it")
        axis = signature.axis(self.dim)
        size = signature.shape[axis] if signature.shape is not None else None
        if size is not None and size < LEAST_SAMPLES:
            raise SignatureError(f"`cka` needs at least {LEAST_SAMPLES} samples in a batch, and axis `{self.dim}` has {size}")
        return Signature("float64", (len(LABELS),), ("stat",), {"stat": LABELS})

    def compare(self, signature: Signature) -> CompareFn:
        """The estimates of one batch; `merge` combines them with those of others."""
        import torch

        from probes.transforms.kernels.pairs import hsic_of

        axis = signature.axis(self.dim)

        def work(value: Tensor, other: Tensor) -> Tensor:
            rows, others = (one.movedim(axis, 0).flatten(1) if one.ndim > 1 else one[:, None] for one in (value, other))
            if len(rows) != len(others) or len(rows) < LEAST_SAMPLES:
                raise ValueError(f"`cka` compares the same samples, at least {LEAST_SAMPLES}, and has {len(rows)} and {len(others)}")
            numbers = hsic_of(rows, others)
            return torch.cat([_cka(numbers), numbers, numbers.new_ones(1)])

        return work

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        """The means of the estimates of both, and the CKA of these."""
        import torch

        batches = earlier[-1:] + later[-1:]
        numbers = (earlier[1:4] * earlier[-1] + later[1:4] * later[-1]) / batches
        return torch.cat([_cka(numbers), numbers, batches])


def _cka(numbers: Tensor) -> Tensor:
    """(1,) the alignment; NaN if one of the two has no variance."""
    both, value, other = numbers
    found: Tensor = both / (value * other).clamp(min=0).sqrt()
    return found.reshape(1)
