"""Set to zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from probes.component import EditContext, EditFn
from probes.edits.kernels.position import At, PlacedEdit, index, overwrite, take

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Zero(PlacedEdit):
    """Sets the value, or a part of it, to zero; the gradient of that part is zero too."""

    kind: Literal["zero"] = "zero"
    at: At = None

    def begin(self, context: EditContext) -> EditFn:
        """Find the position."""
        place = index(self.at, context)

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            part = take(value, place)
            return overwrite(value, place, part.new_zeros(part.shape)), {}

        return apply
