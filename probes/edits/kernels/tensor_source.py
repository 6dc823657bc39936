"""The source of a vector or a value for an edit: a sealed capture, a file, or the program."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


def _argument(name: str | None) -> str | None:
    """A name that Python takes as that of an argument, as `run.set` needs it."""
    if name is not None and not name.isidentifier():
        raise PydanticCustomError("name", "`{name}` is not a name; write letters, digits and `_`, such as `direction`", {"name": name})
    return name


class EditSource(BaseModel):
    """One capture of a run, an `.npy` file, or a tensor that the program gives."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: Annotated[str | None, Field(description="an .npy file, relative to the spec")] = None
    given: Annotated[
        str | None,
        AfterValidator(_argument),
        Field(description="name of a tensor that the program gives: attach(..., given={NAME: tensor}), run.set(NAME=tensor)"),
    ] = None
    run: Annotated[str | None, Field(description="a run directory, relative to the spec")] = None
    probe: Annotated[str | None, Field(description="a probe of that run")] = None
    target: Annotated[str | None, Field(description="its target; default: the target of the edit")] = None
    leaf: Annotated[str | None, Field(description="its leaf; default: the only one")] = None
    phase: Annotated[str | None, Field(description="its phase; default: the only one")] = None
    epoch: Annotated[int, Field(ge=0, description="epoch of the capture")] = 0
    step: Annotated[int, Field(ge=0, description="step of the capture")] = 0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.file, self.run, self.given].count(None) != 2:
            raise PydanticCustomError("source", "a source is `file`, `given`, or `run` with `probe`: exactly one of the three", {})
        if self.run is not None and self.probe is None:
            raise PydanticCustomError("source", "a capture of a run needs `probe`; write {run: DIR, probe: NAME}", {})
        extra = [key for key in ("probe", "target", "leaf", "phase") if self.run is None and getattr(self, key) is not None]
        if extra:
            other = "file" if self.file is not None else "given"
            raise PydanticCustomError("no_effect", "`{key}` has no effect with `{other}`", {"key": extra[0], "other": other})
        return self
