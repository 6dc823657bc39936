"""Schedules: the epochs, steps and calls of a probe; and conditions on a number of a value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from probes.component import Transform
from probes.spec.kinds import KindOf

Phase = Annotated[str, WithJsonSchema({"type": "string", "not": {"enum": ["all", ""]}})]
Names = Annotated[tuple[Phase, ...], Field(strict=False, json_schema_extra={"uniqueItems": True, "minItems": 1})]
Count = Annotated[int, Field(ge=0)]
Counts = tuple[Count, ...]
Positive = Annotated[int, Field(ge=1)]


WINDOW = 20
"""The number of values in a running mean, if the spec does not set it."""


PlainName = Annotated[str, Field(min_length=1)]


class SpecPart(BaseModel):
    """A part of a spec: frozen, strict, without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=False, serialize_by_alias=True
    )

    def has(self, key: str) -> bool:
        """Whether a key that may be absent has a value."""
        return getattr(self, key) is not None


class Range(SpecPart):
    """A set of numbers: the list `at`, or a combination of `from`, `until`, `every` and `first`.

    With k = i - from: i is chosen where k >= 0, i < until, and k < first or k is divisible by every; with neither of the
    two, all of the range.
    """

    at: Annotated[
        Counts | None,
        Field(strict=False, json_schema_extra={"uniqueItems": True, "minItems": 1}, description="list of numbers; excludes the other keys"),
    ] = None
    from_: Annotated[Count | None, Field(alias="from", description="first number of the range; default: 0")] = None
    until: Annotated[Positive | None, Field(description="first number after the range")] = None
    every: Annotated[Positive | None, Field(description="every n-th number, counted from `from`")] = None
    first: Annotated[Positive | None, Field(description="first n numbers, counted from `from`")] = None

    @property
    def given(self) -> list[str]:
        """The given keys other than `at`."""
        known = {"from": self.from_, "until": self.until, "every": self.every, "first": self.first}
        return [name for name, value in known.items() if value is not None]

    @property
    def is_all(self) -> bool:
        """Whether every number is selected, which cancels a default."""
        return self.at is None and not self.from_ and self.until is None and self.first is None and self.every in (None, 1)

    def includes(self, number: int) -> bool:
        """Whether a number is selected."""
        if self.at is not None:
            return number in self.at
        k = number - (self.from_ or 0)
        if k < 0 or (self.until is not None and number >= self.until):
            return False
        if self.every is None and self.first is None:
            return True
        return (self.first is not None and k < self.first) or (self.every is not None and k % self.every == 0)

    def count(self, numbers: int) -> int:
        """How many of the numbers 0 to `numbers - 1` are selected."""
        if self.at is not None:
            return sum(1 for number in set(self.at) if number < numbers)
        width = max(0, min(self.until if self.until is not None else numbers, numbers) - (self.from_ or 0))
        leading = min(self.first, width) if self.first is not None else 0
        if self.every is not None:
            return leading - (-width // self.every) + (-leading // self.every)
        return leading if self.first is not None else width


class Condition(SpecPart):
    """Bounds of a number: all that are given must hold."""

    series: Annotated[
        PlainName | None, Field(description="a probe whose value has the number, in the same step; default: the value itself")
    ] = None
    loop: Annotated[
        PlainName | None, Field(description="a value of the loop that is the number, in the same step, such as loss; see run.log")
    ] = None
    of: Annotated[
        Annotated[Transform, KindOf("transform")] | None,
        Field(description="transform that makes a number of the value before its transforms; default: the stored value is the number"),
    ] = None
    above: Annotated[float | None, Field(description="the number is greater")] = None
    below: Annotated[float | None, Field(description="the number is less")] = None
    outside: Annotated[
        tuple[float, ...] | None,
        Field(
            strict=False,
            json_schema_extra={"minItems": 2, "maxItems": 2},
            description="[low, high]: the number is less than low, greater than high, or NaN",
        ),
    ] = None
    deviations: Annotated[
        Literal[True] | None, Field(description="the bounds are standard deviations from the running mean of the series")
    ] = None
    window: Annotated[
        int | None, Field(ge=2, description=f"numbers of the running mean, the last of the series before this one; default: {WINDOW}")
    ] = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the number is that of another series, or of the loop."""
        return self.series is not None or self.loop is not None

    @property
    def bounds(self) -> list[str]:
        """The given bounds, as text."""
        known = {"above": self.above, "below": self.below}
        found = [f"{name} {bound:g}" for name, bound in known.items() if bound is not None]
        return found if self.outside is None else [*found, f"outside [{', '.join(f'{bound:g}' for bound in self.outside)}]"]

    def holds(self, number: float) -> bool:
        """Whether a number, or its deviation, is within all bounds; a NaN is only `outside`."""
        if self.outside is not None and self.outside[0] <= number <= self.outside[1]:
            return False
        return (self.above is None or number > self.above) and (self.below is None or number < self.below)


class Trigger(Condition):
    """Keeps captures in memory and writes them only around an event."""

    kind: Annotated[
        Literal["nonfinite", "threshold"],
        Field(description="event: a value contains NaN or infinity, or a number of it is above, below or outside of bounds"),
    ]
    before: Annotated[Count, Field(description="number of steps before the event to write")] = 0
    then: Annotated[Literal["continue", "stop"], Field(description="action after the event: continue, or stop the training")] = "continue"


class When(SpecPart):
    """A schedule. A capture must satisfy all keys; an absent key (except `phases`) allows all."""

    phases: Annotated[Names, Field(description="phases: train, eval, or names from the loop")] = ("train",)
    epochs: Annotated[Range | None, Field(description="epochs, from 0")] = None
    steps: Annotated[Range | None, Field(description="steps, from 0 in every epoch and phase")] = None
    microsteps: Annotated[Range | None, Field(description="outermost calls within a step, from 0")] = None
    calls: Annotated[Range | None, Field(description="calls of the module within an outermost call, from 0")] = None
    ranks: Annotated[Range | None, Field(description="ranks of a distributed run")] = None
    trigger: Annotated[Trigger | None, Field(description="keep captures only around an event")] = None

    @property
    def schedule(self) -> When:
        """The same without the trigger, which selects among captures."""
        return self if self.trigger is None else self.model_copy(update={"trigger": None})

    def covers(self, epoch: int, phase: str | None, rank: int) -> bool:
        """Whether anything can be due in this epoch, phase (None for any) and process."""
        return (
            (phase is None or phase in self.phases)
            and (self.epochs is None or self.epochs.includes(epoch))
            and (self.ranks is None or self.ranks.includes(rank))
        )

    def includes_call(self, microstep: int, call: int) -> bool:
        """Whether a call is selected, if its step is."""
        return (self.microsteps is None or self.microsteps.includes(microstep)) and (self.calls is None or self.calls.includes(call))


RANGES = tuple(name for name in When.model_fields if name not in ("phases", "trigger"))
"""The keys of a schedule that hold a range."""
