"""Rules: bounds of captured numbers, and the action if one is broken."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from probes.spec.texts import Name, Patterns
from probes.spec.when import SpecPart

UPPER, LOWER = ("above", "at_least"), ("below", "at_most")


class Rule(SpecPart):
    """A bound of captured numbers. A number that is NaN is out of every bound."""

    about: Annotated[str, Field(description="description for readers")] = ""
    probe: Annotated[Name, Field(description="name of the probe whose captures are checked")]
    targets: Annotated[Patterns, Field(description="paths or globs of its targets; default: all")] = ()
    leaves: Annotated[Patterns, Field(description="paths or globs of its leaves, such as output.0; default: all")] = ()
    number: Annotated[
        str | None,
        Field(
            min_length=1,
            description="label of the numbers to check, such as zeros of `stats`, or the kind of the transform that makes a single "
            "number, such as norm; default: every number of a capture",
        ),
    ] = None
    divided_by: Annotated[
        str | None,
        Field(min_length=1, description="label of the number to divide by, such as count; where it is 0, nothing is checked"),
    ] = None
    above: Annotated[float | None, Field(description="a number above this is out of bounds")] = None
    at_least: Annotated[float | None, Field(description="a number of at least this is out of bounds")] = None
    below: Annotated[float | None, Field(description="a number below this is out of bounds")] = None
    at_most: Annotated[float | None, Field(description="a number of at most this is out of bounds")] = None
    for_: Annotated[int, Field(alias="for", ge=1, description="number of steps in a row out of bounds that break the rule")] = 1
    then: Annotated[
        Literal["note", "stop", "fail"],
        Field(description="note: report it; stop: also stop the training; fail: also end the run with exit code 1"),
    ] = "note"

    @property
    def bounds(self) -> dict[str, float]:
        """The given bounds by key."""
        given = {key: getattr(self, key) for key in (*UPPER, *LOWER)}
        return {key: value for key, value in given.items() if value is not None}

    def __str__(self) -> str:
        words = " or ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in self.bounds.items())
        ratio = f" / {self.divided_by}" if self.divided_by else ""
        name = f"`{self.number}{ratio}` " if self.number else ""
        return f"{name}{words}" + (f" in {self.for_} steps in a row" if self.for_ > 1 else "")
