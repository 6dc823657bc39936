"""The answers of the clock of a run: small immutable records that state the consequences of an event."""

from __future__ import annotations

from typing import NamedTuple


class EpochOpened(NamedTuple):
    """An epoch begins.

    Attributes:
        epoch: its number.
        starts: steps of the epochs before, by phase.
        first_step: number of its first training step; not 0 if an earlier attempt has the steps before.
    """

    epoch: int
    starts: dict[str, int]
    first_step: int = 0


class EpochEnded(NamedTuple):
    """An epoch is over.

    Attributes:
        epoch: its number.
        complete: whether it has ended.
        reason: why it did not; empty if it did.
        steps: its steps by phase.
    """

    epoch: int
    complete: bool
    reason: str
    steps: dict[str, int]


class StepOpened(NamedTuple):
    """A step begins; it is numbered with its first call."""

    phase: str
    step: int


class StepPaused(NamedTuple):
    """A step stays open while a step of another phase runs within it."""

    phase: str
    step: int


class StepResumed(NamedTuple):
    """A step that was paused continues."""

    phase: str
    step: int


class StepEnded(NamedTuple):
    """A step is over.

    Attributes:
        phase: its phase.
        step: its number within (epoch, phase).
        keep: whether it is committed; a step whose body raised is dropped.
        ids: sample ids, if the loop gave them.
        global_step: steps of this phase in earlier epochs, plus `step`.
    """

    phase: str
    step: int
    keep: bool
    ids: tuple[int | str, ...]
    global_step: int


class SeveralUpdates(NamedTuple):
    """For the first time several optimizer steps came on one batch, which is one step."""

    updates: int


Answer = EpochOpened | EpochEnded | StepOpened | StepPaused | StepResumed | StepEnded | SeveralUpdates
Answers = tuple[Answer, ...]


class Position(NamedTuple):
    """The place of an outermost call in the run.

    Attributes:
        epoch: its epoch.
        phase: its phase.
        step: step within (epoch, phase).
        microstep: outermost call within the step.
    """

    epoch: int
    phase: str
    step: int
    microstep: int
