"""The source of a vector or a value for an edit: a sealed capture, or a file."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


class EditSource(BaseModel):
    """One capture of a run, or an `.npy` file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: Annotated[str | None, Field(description="an .npy file, relative to the spec")] = None
    run: Annotated[str | None, Field(description="a run directory, relative to the spec")] = None
    probe: Annotated[str | None, Field(description="a probe of that run")] = None
    target: Annotated[str | None, Field(description="its target; default: the target of the edit")] = None
    leaf: Annotated[str | None, Field(description="its leaf; default: the only one")] = None
    phase: Annotated[str | None, Field(description="its phase; default: the only one")] = None
    epoch: Annotated[int, Field(ge=0, description="epoch of the capture")] = 0
    step: Annotated[int, Field(ge=0, description="step of the capture")] = 0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.run is None):
            raise PydanticCustomError("source", "a source is `file`, or `run` with `probe`: exactly one of the two", {})
        if self.run is not None and self.probe is None:
            raise PydanticCustomError("source", "a capture of a run needs `probe`", {})
        extra = [key for key in ("probe", "target", "leaf", "phase") if self.file is not None and getattr(self, key) is not None]
        if extra:
            raise PydanticCustomError("no_effect", "`{key}` has no effect with `file`", {"key": extra[0]})
        return self
