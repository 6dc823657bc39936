"""Keep values within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import EditContext, EditFn
from probes.edits.kernels.dtypes import require_floats
from probes.edits.kernels.position import At, PlacedEdit, index, put, take

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Clamp(PlacedEdit):
    """Replaces elements outside the bounds by the nearer bound."""

    kind: Literal["clamp"] = "clamp"
    min: Annotated[float | None, Field(description="lower bound")] = None
    max: Annotated[float | None, Field(description="upper bound")] = None
    at: At = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.min is None and self.max is None:
            raise PydanticCustomError("no_effect", "`clamp` without `min` and `max` has no effect", {})
        if self.min is not None and self.max is not None and self.min > self.max:
            raise PydanticCustomError("range", "`min` ({low}) is above `max` ({high})", {"low": self.min, "high": self.max})
        return self

    def begin(self, context: EditContext) -> EditFn:
        """Find the position; only floats are taken, because the bounds are.

        Raises:
            SignatureError: the value is of another dtype, or has no axes of these names.
        """
        require_floats(context.signature)
        place = index(self.at, context)

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            return put(value, place, take(value, place).clamp(self.min, self.max)), {}

        return apply
