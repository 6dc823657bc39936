"""A kind of one's own: the share of elements above a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, INTEGERS, Signature

if TYPE_CHECKING:
    from torch import Tensor


class Above(Transform):
    """Reduces a value to the share of its elements that are above a threshold; of no elements it is NaN."""

    kind: Literal["acme.above"] = "acme.above"
    threshold: float = Field(default=0.0, description="What an element has to be above.")

    def out(self, signature: Signature) -> Signature:
        """Always one float32.

        Raises:
            SignatureError: the value is neither of integers nor of floats.
        """
        signature.require((*INTEGERS, *FLOATS), "put a cast to float32 before it")
        return Signature("float32", (), ())

    def begin(self, signature: Signature) -> TransformFn:
        """One comparison and one mean."""

        def work(tensor: Tensor) -> Tensor:
            return (tensor > self.threshold).float().mean()

        return work
