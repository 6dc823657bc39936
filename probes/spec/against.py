"""The second tensor of a comparison: of another step, of another series, or of another run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from probes.spec.texts import Name, Pattern
from probes.spec.when import SpecPart


class Against(SpecPart):
    """Names the tensor with which each value of the probe is compared: `step`, `series` or `run`."""

    step: Annotated[
        Literal["previous", "first"] | None,
        Field(description="the same value in the due step before, or in the first one of the run"),
    ] = None
    series: Annotated[Name | None, Field(description="a probe of the spec: its value in the same step and call")] = None
    run: Annotated[str | None, Field(min_length=1, description="run directory, relative to the spec: its capture of that clock")] = None
    probe: Annotated[Name | None, Field(description="with `run`: its probe; default: a probe of the same name")] = None
    target: Annotated[
        Pattern | None,
        Field(
            description="with `series` or `run`: its target; default: the same target, or the only one. With `series`, a glob compares "
            "with each match"
        ),
    ] = None

    @property
    def sources(self) -> list[str]:
        """The given keys that say where the tensor is; exactly one is right."""
        return [name for name in SOURCES if getattr(self, name) is not None]


SOURCES = ("step", "series", "run")
