"""Count elements into equal bins."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Transform, TransformFn
from probes.signature import FLOAT8, FLOATS, INTEGERS, Signature

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Histogram(Transform):
    """Counts elements in bins of equal width between two bounds; elements below, above, and NaN have separate buckets.

    The result has `bins` + 3 buckets: `under`, the bins, `over`, `nan`. A bin includes its lower edge; the last bin also includes
    its upper edge. Edges are compared exactly, in the precision of the value.
    """

    kind: Literal["histogram"] = "histogram"
    bins: int = Field(gt=0, le=65536, description="Number of bins between the bounds.")
    range: tuple[float, float] = Field(description="Lower edge of the first bin and upper edge of the last.")

    @model_validator(mode="after")
    def _range_ascends(self) -> Histogram:
        low, high = self.range
        if not low < high:
            raise PydanticCustomError("empty_range", "`range` must be [low, high] with low < high")
        return self

    @property
    def edges(self) -> tuple[float, ...]:
        """The `bins` + 1 edges, as float64."""
        low, high = self.range
        return (*(low + (high - low) * i / self.bins for i in range(self.bins)), high)

    def out(self, signature: Signature) -> Signature:
        """Always int64[bin=bins + 3], labelled with the intervals.

        Raises:
            SignatureError: the value is complex, packed or quantized.
        """
        signature.require(("bool", *INTEGERS, *FLOATS, *FLOAT8), "take the real numbers you mean first, such as the magnitude with `abs`")
        edges = [f"{edge:.6g}" for edge in self.edges]
        inner = [f"[{low}, {high})" for low, high in pairwise(edges[:-1])]
        labels = ("under", *inner, f"[{edges[-2]}, {edges[-1]}]", "over", "nan")
        return Signature("int64", (self.bins + 3,), ("bin",), {"bin": labels})

    def begin(self, signature: Signature) -> TransformFn:
        """A binary search among the edges, then a count; both stay on the device."""
        import torch

        wide = signature.dtype == "float64" or signature.dtype in INTEGERS
        return _Counting(torch.tensor(self.edges, dtype=torch.float64), torch.float64 if wide else torch.float32)


class _Counting:
    """Counts into buckets; the edges move to the device of the first value.

    Attributes:
        edges: (bins + 1,) float32 or float64 on the device of the last value. The lower ones are rounded up to the dtype
            elements are compared in, which tells the same elements apart as the exact edges do; the last one is the first
            number above the range.
    """

    def __init__(self, exact: Tensor, dtype: torch.dtype) -> None:
        import torch

        edges = exact.to(dtype)
        infinity = torch.tensor(torch.inf, dtype=dtype)
        short = edges.double() < exact
        short[-1] = edges[-1].double() <= exact[-1]
        self.edges = torch.where(short, edges.nextafter(infinity), edges)

    def __call__(self, tensor: Tensor) -> Tensor:
        import torch

        values = tensor.reshape(-1).to(self.edges.dtype)
        if self.edges.device != values.device:
            self.edges = self.edges.to(values.device)
        buckets = torch.bucketize(values, self.edges, right=True).masked_fill_(values.isnan(), len(self.edges) + 1)
        counts = torch.zeros(len(self.edges) + 2, dtype=torch.int64, device=values.device)
        return counts.scatter_add_(0, buckets, torch.ones_like(buckets))
