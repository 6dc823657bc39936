"""Add Gaussian noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from probes.component import EditContext, EditFn
from probes.edits.kernels.dtypes import require_floats
from probes.edits.kernels.position import At, PlacedEdit, index, put, take

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Noise(PlacedEdit):
    """Adds normal noise with mean 0; drawn on the host in float32, so that every device gets the same numbers."""

    random: ClassVar[bool] = True

    kind: Literal["noise"] = "noise"
    std: Annotated[float, Field(gt=0, description="standard deviation")]
    seed: Annotated[int, Field(ge=0, description="seed of the generator of this edit")] = 0
    at: At = None

    def begin(self, context: EditContext) -> EditFn:
        """Find the position.

        Raises:
            SignatureError: the value is not of floats, or has no axes of these names.
        """
        import torch

        require_floats(context.signature)
        place = index(self.at, context)

        def apply(value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            part = take(value, place)
            drawn = torch.randn(part.shape, generator=generator) * self.std
            return put(value, place, part + drawn.to(part)), {}

        return apply
