"""Multiply by a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from probes.component import Edit, EditContext, EditFn
from probes.edits.kernels.position import At, index, put, take

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Scale(Edit):
    """Multiplies the value by a number."""

    kind: Literal["scale"] = "scale"
    by: Annotated[float, Field(description="the factor")]
    at: At = None

    def begin(self, context: EditContext) -> EditFn:
        """Fix the place."""
        place = index(self.at, context.signature)

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            return put(value, place, take(value, place) * self.by), {}

        return apply
