"""The events that fire the triggers of a run, with their place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TriggerEvent:
    """The first value of a step that fires a trigger.

    Attributes:
        probe: name of the probe that saw it.
        model: name of the model, if there are several.
        target: path of the module, parameter or buffer.
        leaf: which value of it.
        kind: class of the module.
        epoch, phase, step, microstep, call, backward, rank: where it is in the run.
        then: what the trigger says is done about it.
    """

    probe: str
    model: str
    target: str
    leaf: str
    kind: str
    epoch: int
    phase: str
    step: int
    microstep: int
    call: int
    backward: int
    rank: int
    then: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the file."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def place(self) -> str:
        """The place in the model."""
        model = f" of model `{self.model}`" if self.model else ""
        return f"`{self.leaf}` of {f'`{self.target}`' if self.target else 'the root'} ({self.kind}){model}"

    @property
    def where(self) -> str:
        """The event and its place in the model."""
        return self.place

    @property
    def when(self) -> str:
        """The place in the run."""
        further = {"microstep": self.microstep, "call": self.call, "backward": self.backward, "rank": self.rank}
        rest = "".join(f", {name} {number}" for name, number in further.items() if number > 0)
        return f"epoch {self.epoch}, {self.phase} step {self.step}{rest}"


@dataclass(frozen=True)
class ThresholdEvent(TriggerEvent):
    """The first number of a step that meets the condition of a trigger.

    Attributes:
        number: the number, as text.
        bounds: the bounds for which the trigger fires, such as `above 6`.
        mean: mean of the numbers before, as text; empty if the bounds are absolute.
        deviation: standard deviations from it, as text.
    """

    number: str
    bounds: str
    mean: str = ""
    deviation: str = ""

    @property
    def where(self) -> str:
        """The event and its place in the model."""
        return f"{self.number} for {self.place}"

    def __str__(self) -> str:
        bounds = f"{self.deviation} standard deviations from the mean {self.mean}, {self.bounds}" if self.mean else self.bounds
        return f"first value beyond the bounds: {self.where}, {self.when}; {bounds}"
