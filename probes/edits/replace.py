"""Replace a value by one from a capture or a file (activation patching)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from probes.component import EditContext, EditFn
from probes.edits.kernels.dtypes import converted
from probes.edits.kernels.position import At, PlacedEdit, index, overwrite, take
from probes.edits.kernels.tensor_source import EditSource
from probes.signature import SignatureError

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Replace(PlacedEdit):
    """Replaces the value, or a part of it, by the same part of the source."""

    kind: Literal["replace"] = "replace"
    from_: Annotated[EditSource, Field(alias="from", description="source: {file: x.npy}, {given: NAME} or {run: DIR, probe: NAME}")]
    at: At = None

    def begin(self, context: EditContext) -> EditFn:
        """Find the position and the part of the source."""
        place = index(self.at, context)
        source = context.source
        if source is None:
            raise AssertionError("BUG: `replace` began without its source")

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            part = take(value, place)
            given = take(source, place) if source.ndim == value.ndim else source
            if given.shape != part.shape:
                message = f"at this position the source has shape {tuple(given.shape)}, and the value {tuple(part.shape)}"
                raise SignatureError(message)
            return overwrite(value, place, converted(given, part)), {}

        return apply
