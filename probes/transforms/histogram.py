"""Count elements into equal bins."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Transform, TransformFn
from probes.signature import FLOAT8, FLOATS, INTEGERS, Signature

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SMALLEST_INT, LARGEST_INT = -(1 << 63), (1 << 63) - 1


class Histogram(Transform):
    """Counts elements in bins of equal width between two bounds; elements below, above, and NaN have separate buckets.

    The result has `bins` + 3 buckets: `under`, the bins, `over`, `nan`. A bin includes its lower edge; the last bin also includes its
    upper edge. Edges are float64 numbers, and every element, also a 64-bit integer, is compared with them exactly. With `dims` the
    axis `bin` comes first, then the axes that remain.
    """

    kind: Literal["histogram"] = "histogram"
    bins: int = Field(gt=0, le=65536, description="Number of bins between the bounds.")
    range: tuple[float, float] = Field(description="Lower edge of the first bin and upper edge of the last.")
    dims: tuple[str | int, ...] | None = Field(
        default=None, min_length=1, description="Names or numbers of the axes to count over; default: all."
    )

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
        """Predict int64 with an axis `bin`, labelled with the intervals.

        Raises:
            SignatureError: the value is complex, packed or quantized, or there is no such axis.
        """
        signature.require(("bool", *INTEGERS, *FLOATS, *FLOAT8), "put a transform before it that makes real numbers, such as `abs`")
        labels = next((found for digits in range(6, 17) if len({*(found := self._labels(digits))}) == len(found)), self._labels(17))
        return signature.without(self.dims).with_first("bin", self.bins + 3, labels).replace(dtype="int64")

    def _labels(self, digits: int) -> tuple[str, ...]:
        """The names of the buckets, with this many digits of each edge."""
        edges = [f"{edge:.{digits}g}" for edge in self.edges]
        inner = [f"[{low}, {high})" for low, high in pairwise(edges[:-1])]
        return ("under", *inner, f"[{edges[-2]}, {edges[-1]}]", "over", "nan")

    def begin(self, signature: Signature) -> TransformFn:
        """A binary search among the edges, then a count; both stay on the device."""
        import torch

        from probes.transforms.kernels.summation import as_rows

        axes = signature.axes(self.dims if self.dims is not None else range(signature.ndim or 0))
        whole = signature.dtype in INTEGERS or signature.dtype == "bool"
        wide = torch.float64 if signature.dtype == "float64" else torch.float32
        unsigned = signature.dtype == "uint64"
        edges = _integer_edges(self.edges, unsigned=unsigned) if whole else _float_edges(self.edges, wide)
        buckets = self.bins + 3
        kept: dict[torch.device, Tensor] = {}

        def work(tensor: Tensor) -> Tensor:
            rows = as_rows(tensor, axes)
            values = rows.to(edges.dtype) if not unsigned else rows.contiguous().view(torch.int64) ^ SMALLEST_INT
            if values.device not in kept:
                kept[values.device] = edges.to(values.device)
            found = torch.bucketize(values.contiguous(), kept[values.device], right=True)
            if not whole:
                found = found.masked_fill_(values.isnan(), buckets - 1)
            counts = torch.zeros((buckets, rows.shape[1]), dtype=torch.int64, device=values.device)
            counts.scatter_add_(0, found, torch.ones_like(found))
            return counts.reshape(buckets, *(size for axis, size in enumerate(tensor.shape) if axis not in axes))

        return work


def _float_edges(edges: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """The edges in the dtype in which elements are compared.

    The lower edges are rounded up to it, which separates the same elements as the exact edges do; the last one is the first number
    above the range.
    """
    import torch

    exact = torch.tensor(edges, dtype=torch.float64)
    rounded = exact.to(dtype)
    short = rounded.double() < exact
    short[-1] = rounded[-1].double() <= exact[-1]
    return torch.where(short, rounded.nextafter(torch.tensor(torch.inf, dtype=dtype)), rounded)


def _integer_edges(edges: tuple[float, ...], *, unsigned: bool) -> Tensor:
    """The edges as int64, without those beyond its range, because no element reaches them.

    Elements of uint64 are compared less 2**63, which fits into int64; so are the edges.
    """
    import torch

    shift = 1 << 63 if unsigned else 0
    whole = [*(ceil(edge) - shift for edge in edges[:-1]), floor(edges[-1]) + 1 - shift]
    return torch.tensor([max(edge, SMALLEST_INT) for edge in whole if edge <= LARGEST_INT], dtype=torch.int64)
