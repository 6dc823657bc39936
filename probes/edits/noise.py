"""Add Gaussian noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from probes.component import Edit, EditContext, EditFn
from probes.edits.kernels.position import At, index, put, take
from probes.signature import FLOATS, SignatureError

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Noise(Edit):
    """Adds normal noise with mean 0; drawn on the host in float32, so every device sees the same."""

    random: ClassVar[bool] = True

    kind: Literal["noise"] = "noise"
    std: Annotated[float, Field(gt=0, description="standard deviation")]
    seed: Annotated[int, Field(ge=0, description="seed of the edit's own generator")] = 0
    at: At = None

    def begin(self, context: EditContext) -> EditFn:
        """Fix the place."""
        import torch

        if context.signature.dtype not in FLOATS:
            raise SignatureError(f"noise is added to floating-point values, this one is {context.signature.dtype}")
        place = index(self.at, context.signature)

        def apply(value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            part = take(value, place)
            drawn = torch.randn(part.shape, generator=generator) * self.std
            return put(value, place, part + drawn.to(part)), {}

        return apply
