"""Store codes of 8 or 16 bits instead of floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, Signature

if TYPE_CHECKING:
    from torch import Tensor


class Quantize(Transform):
    """Replaces floats by integer codes: code c means low + c * (high - low) / levels; the highest code means NaN.

    `levels` is 254 for 8 bits and 65534 for 16. Values outside the range get the code of the nearer bound.
    """

    kind: Literal["quantize"] = "quantize"
    bits: Literal[8, 16] = Field(default=8, description="Number of bits of a code.")
    range: tuple[float, float] = Field(description="Values of code 0 and of code `levels`.")

    @model_validator(mode="after")
    def _range_ascends(self) -> Quantize:
        low, high = self.range
        if not low < high:
            raise PydanticCustomError("empty_range", "`range` must be [low, high] with low < high")
        return self

    def out(self, signature: Signature) -> Signature:
        """The same axes, as uint8 or uint16.

        Raises:
            SignatureError: the value is not of floats.
        """
        signature.require(FLOATS, "only floats are worth quantizing")
        return signature.replace(dtype=f"uint{self.bits}")

    def begin(self, signature: Signature) -> TransformFn:
        """Rounding in float64, half to even."""
        import torch

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        low, high = self.range
        levels = 2**self.bits - 2
        step = (high - low) / levels

        def work(tensor: Tensor) -> Tensor:
            codes = tensor.double().sub_(low) if tensor.dtype is not torch.float64 else tensor - low
            return codes.div_(step).round_().clamp_(0, levels).nan_to_num_(nan=levels + 1).to(torch.int32).to(dtype)

        return work
