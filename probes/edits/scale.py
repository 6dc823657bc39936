"""Multiply by a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from probes.component import EditContext, EditFn
from probes.edits.kernels.dtypes import require_numbers
from probes.edits.kernels.factor import Factor, number_of
from probes.edits.kernels.position import At, PlacedEdit, index, put, take

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Scale(PlacedEdit):
    """Multiplies the value by a number."""

    kind: Literal["scale"] = "scale"
    by: Annotated[Factor, Field(description="factor: a number, or {given: NAME}")]
    at: At = None

    def begin(self, context: EditContext) -> EditFn:
        """Find the position; the result of an integer would be a float, so only floats and complex numbers are taken.

        Raises:
            SignatureError: the value is of another dtype, or has no axes of these names.
        """
        require_numbers(context.signature)
        place = index(self.at, context)

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            return put(value, place, take(value, place) * number_of(self.by, context.given)), {}

        return apply
