"""Multiply by a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from probes.component import Edit, EditContext, EditFn
from probes.edits.kernels.dtypes import require_numbers
from probes.edits.kernels.position import At, index, put, take

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Scale(Edit):
    """Multiplies the value by a number."""

    kind: Literal["scale"] = "scale"
    by: Annotated[float, Field(description="factor")]
    at: At = None

    def begin(self, context: EditContext) -> EditFn:
        """Find the position; the result of an integer would be a float, so only floats and complex numbers are taken.

        Raises:
            SignatureError: the value is of another dtype, or has no axes of these names.
        """
        require_numbers(context.signature)
        place = index(self.at, context.signature)

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            return put(value, place, take(value, place) * self.by), {}

        return apply
