"""Keep the largest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, Signature

if TYPE_CHECKING:
    from torch import Tensor

ORDERED = ("uint8", "int8", "int16", "int32", "int64", *FLOATS)


class Topk(Transform):
    """Keeps the `size` largest elements along an axis, or their indices, largest first; the axis is renamed to `rank`.

    NaN counts as larger than any number. Equal elements keep their order. A shorter axis is kept completely.
    """

    kind: Literal["topk"] = "topk"
    size: int = Field(gt=0, description="Number of elements to keep.")
    dim: str | int = Field(default=-1, description="Name or number of the axis.")
    keep: Literal["values", "indices"] = Field(default="values", description="Store the elements, or their indices along the axis.")
    smallest: bool = Field(default=False, description="Keep the smallest elements instead, smallest first.")

    def out(self, signature: Signature) -> Signature:
        """The axis shortened and renamed; indices are int64.

        Raises:
            SignatureError: there is no such axis, or the dtype has no order.
        """
        signature.require(ORDERED, "put a cast to float32 before it")
        axis = signature.axis(self.dim)
        size = signature.shape[axis] if signature.shape is not None else None
        kept = signature.with_axis(axis, "rank", None if size is None else min(size, self.size))
        return kept if self.keep == "values" else kept.replace(dtype="int64")

    def begin(self, signature: Signature) -> TransformFn:
        """A stable sort: `torch.topk` does not define the order of equal elements."""
        axis = signature.axis(self.dim)

        def work(tensor: Tensor) -> Tensor:
            ordered = tensor.sort(dim=axis, descending=not self.smallest, stable=True)
            found = ordered.values if self.keep == "values" else ordered.indices
            return found.narrow(axis, 0, min(self.size, found.shape[axis]))

        return work
