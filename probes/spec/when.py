"""Schedules: which epochs, steps and calls a probe wants."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


def once(members: tuple[Any, ...]) -> tuple[Any, ...]:
    """The members of a list, of which none may stand in it twice."""
    for index, member in enumerate(members):
        if member in members[:index]:
            context = {"member": str(member), "at": (index,), "hint": "name it once"}
            raise PydanticCustomError("no_effect", "'{member}' stands twice in this list, which has no effect", context)
    return members


Names = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(once)]
Count = Annotated[int, Field(ge=0)]
Counts = Annotated[tuple[Count, ...], AfterValidator(once)]
Positive = Annotated[int, Field(ge=1)]


class Part(BaseModel):
    """A part of a spec: frozen, strict, without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=False, serialize_by_alias=True
    )


def _refused(message: str, key: str, hint: str, code: Literal["range", "phases"] = "range") -> PydanticCustomError:
    return PydanticCustomError(code, "{text}", {"text": message, "at": (key,) if key else (), "hint": hint})


class Range(Part):
    """Which numbers are chosen: those of `at`, or the others' combination.

    With k = i - from: i is chosen where k >= 0, i < until, and k < first or k is divisible by every; with neither of the
    two, all of the range.
    """

    at: Annotated[Counts | None, Field(strict=False, description="exactly these numbers")] = None
    from_: Annotated[Count | None, Field(alias="from", description="the first number of the range; 0 without it")] = None
    until: Annotated[Positive | None, Field(description="the first number after the range")] = None
    every: Annotated[Positive | None, Field(description="each n-th number, counted from `from`")] = None
    first: Annotated[Positive | None, Field(description="the first n numbers, counted from `from`")] = None

    @model_validator(mode="after")
    def _meant(self) -> Self:
        others = [name for name in ("from", "until", "every", "first") if getattr(self, "from_" if name == "from" else name) is not None]
        if self.at is not None and others:
            raise _refused(f"`at` stands alone; it says everything `{others[0]}` could", others[0], f"leave `{others[0]}` out")
        if self.at is None and not others:
            raise _refused("an empty range chooses nothing", "", "for all numbers leave the key out")
        if self.at is not None and not self.at:
            raise _refused("`at` is empty, so nothing is ever chosen", "at", "name numbers, or switch the probe off: `enabled: false`")
        first = self.from_ or 0
        if self.until is not None and self.until <= first:
            raise _refused(f"`until` ({self.until}) is not after `from` ({first}); it is exclusive", "until", f"write {first + 1} or more")
        if self.every == 1 and self.first is not None:
            raise _refused("`first` has no effect beside `every: 1`, which chooses every number", "first", "leave one of the two out")
        return self

    @property
    def is_all(self) -> bool:
        """Whether every number is chosen, which is how a default is undone."""
        return self.at is None and not self.from_ and self.until is None and self.first is None and self.every in (None, 1)

    def includes(self, number: int) -> bool:
        """Whether a number is chosen."""
        if self.at is not None:
            return number in self.at
        k = number - (self.from_ or 0)
        if k < 0 or (self.until is not None and number >= self.until):
            return False
        if self.every is None and self.first is None:
            return True
        return (self.first is not None and k < self.first) or (self.every is not None and k % self.every == 0)

    def count(self, numbers: int) -> int:
        """How many of the numbers 0 to `numbers - 1` are chosen."""
        if self.at is not None:
            return sum(1 for number in set(self.at) if number < numbers)
        width = max(0, min(self.until if self.until is not None else numbers, numbers) - (self.from_ or 0))
        leading = min(self.first, width) if self.first is not None else 0
        if self.every is not None:
            return leading - (-width // self.every) + (-leading // self.every)
        return leading if self.first is not None else width


class Trigger(Part):
    """Captures that are kept only around something that happens."""

    kind: Annotated[Literal["nonfinite"], Field(description="what sets it off: a value that is not finite")]
    before: Annotated[Count, Field(description="steps before the event that are written too")] = 0
    then: Annotated[Literal["continue", "stop"], Field(description="what the run does after the event")] = "continue"


class When(Part):
    """A schedule: every key that stands must agree; a key that is absent means all."""

    phases: Annotated[Names, Field(description="names of phases: train, eval, or names the loop gives")] = ("train",)
    epochs: Annotated[Range | None, Field(description="which epochs")] = None
    steps: Annotated[Range | None, Field(description="which steps, counted from 0 in every epoch and phase")] = None
    microsteps: Annotated[Range | None, Field(description="which outermost calls within a step")] = None
    calls: Annotated[Range | None, Field(description="which calls of the module within an outermost call")] = None
    ranks: Annotated[Range | None, Field(description="which processes")] = None
    trigger: Annotated[Trigger | None, Field(description="keep captures only around an event")] = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not self.phases:
            raise _refused("`phases` is empty, so the probe is never due", "phases", "write [train], or leave it out", "phases")
        if "all" in self.phases or "" in self.phases:
            wrong = "all" if "all" in self.phases else ""
            raise _refused(f"'{wrong}' is not a phase; name them", "phases", "write [train, eval]", "phases")
        return self

    def covers(self, epoch: int, phase: str | None, rank: int) -> bool:
        """Whether anything can be due in this epoch, phase (None for any) and process."""
        return (
            (phase is None or phase in self.phases)
            and (self.epochs is None or self.epochs.includes(epoch))
            and (self.ranks is None or self.ranks.includes(rank))
        )

    def includes_step(self, step: int) -> bool:
        """Whether a step is wanted, given that the schedule covers its epoch and phase."""
        return self.steps is None or self.steps.includes(step)

    def includes_call(self, microstep: int, call: int) -> bool:
        """Whether a call is wanted, given that its step is."""
        return (self.microsteps is None or self.microsteps.includes(microstep)) and (self.calls is None or self.calls.includes(call))
