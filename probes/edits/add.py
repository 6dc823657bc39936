"""Add a number, or a vector from a capture or a file (steering)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import EditContext, EditFn
from probes.edits.kernels.dtypes import converted, require_numbers
from probes.edits.kernels.factor import Factor, number_of
from probes.edits.kernels.position import At, PlacedEdit, index, put, take
from probes.edits.kernels.tensor_source import EditSource
from probes.signature import SignatureError

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Add(PlacedEdit):
    """Adds a number or a tensor, times `scale`; the tensor must broadcast to the value."""

    kind: Literal["add"] = "add"
    value: Annotated[float | None, Field(description="number to add")] = None
    from_: Annotated[
        EditSource | None,
        Field(alias="from", description="source of the tensor: {file: x.npy}, {given: NAME} or {run: DIR, probe: NAME}"),
    ] = None
    scale: Annotated[Factor, Field(description="factor of the added number or tensor: a number, or {given: NAME}")] = 1.0
    at: At = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.value is None) == (self.from_ is None):
            raise PydanticCustomError("add", "`add` takes `value` or `from`: exactly one of the two", {})
        return self

    def begin(self, context: EditContext) -> EditFn:
        """Find the position; the result of an integer would be a float, so only floats and complex numbers are taken.

        Raises:
            SignatureError: the value is of another dtype, or has no axes of these names.
        """
        require_numbers(context.signature)
        place = index(self.at, context)
        source = context.source

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            part = take(value, place)
            scale = number_of(self.scale, context.given)
            if source is None:
                return put(value, place, part + (self.value or 0.0) * scale), {}
            added = converted(source, part) * scale
            try:
                added = added.expand(part.shape)
            except RuntimeError:
                raise SignatureError(f"a tensor of shape {tuple(source.shape)} does not broadcast to {tuple(part.shape)}") from None
            return put(value, place, part + added), {}

        return apply
