"""The state of the run that every hook reads: its clock, and whether a probe is due."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from probes.clock import SeriesKey
from probes.hooks.capture.model_copies import HookOfOurs
from probes.hooks.capture.pinned import PinnedBuffer
from probes.signature import Coord


class CaptureWriter(Protocol):
    """Where captures are written; the journal is one."""

    def descriptor(
        self,
        key: SeriesKey,
        dtype: str,
        shape: tuple[int, ...],
        dims: tuple[str, ...] | None,
        coords: dict[str, Coord],
        attrs: dict[str, object],
        epoch: int | None = None,
    ) -> int:
        """The number under which captures of this series, dtype and shape are added."""

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""


def never(_target: str) -> bool:
    """Take no notice of a module that runs outside any outermost call."""
    return False


class RunState:
    """The run's clock as the hooks see it; the timeline moves it, hooks only read it.

    Attributes:
        epoch: epoch that is open, or was last.
        phase: phase of the step that is open, or was last.
        step: step within (epoch, phase).
        microstep: outermost call within the step; -1 outside any.
        outermost_call: changes with every outermost call, so that a module finds its first call in it.
        step_number: changes with every step.
        writer: where captures go; None while no epoch is open.
        open: whether a step is open.
        inside: whether an outermost call is running.
        named: whether the loop itself opened the step, with `run.steps` or `run.step`.
        stray: called with the target of a hooked module that runs outside any outermost call; returns whether to capture.
        rank: rank of this process.
        pinned: where captures of an accelerator wait until the step ends.
    """

    __slots__ = (
        "epoch",
        "inside",
        "microstep",
        "named",
        "open",
        "outermost_call",
        "phase",
        "pinned",
        "rank",
        "step",
        "step_number",
        "stray",
        "writer",
    )

    def __init__(self, rank: int = 0) -> None:
        self.epoch = 0
        self.phase = "train"
        self.step = 0
        self.microstep = -1
        self.outermost_call = 0
        self.step_number = 0
        self.writer: CaptureWriter | None = None
        self.open = False
        self.inside = False
        self.named = False
        self.stray: Callable[[str], bool] = never
        self.rank = rank
        self.pinned = PinnedBuffer()


class Gate:
    """Whether a schedule wants the step that is open; decided once per step, shared by all hooks of that schedule."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due = False

    def settle(self) -> None:
        """Bring `due` up to date; a plain gate is set by the timeline."""


class AnyGate(Gate):
    """Open where one of several gates is: the gate of a hook that serves probes with different schedules."""

    __slots__ = ("members",)

    def __init__(self, members: Iterable[Gate]) -> None:
        super().__init__()
        self.members = tuple(members)

    def settle(self) -> None:
        """Open where a member is open."""
        self.due = any(member.due for member in self.members)


Within = Callable[[int, int], bool]
"""Whether a schedule wants (microstep, call)."""


class ModuleHook(HookOfOurs):
    """A hook object that sits on a module: one per module and side of its call, whatever the number of probes.

    It holds no tensor, no lock and no file, and is left out when the model is copied, pickled or scripted. Only what a compiled
    graph copied for it waits in `traced` until the call has returned.
    """

    __slots__ = ("call", "gate", "outermost_call", "state", "target", "traced")

    def __init__(self, target: str, state: RunState, gate: Gate) -> None:
        self.target = target
        self.state = state
        self.gate = gate
        self.outermost_call = -1
        self.call = 0
        self.traced: list[Any] = []

    def count(self) -> int:
        """The index of this call of the module within the outermost call."""
        outermost_call = self.state.outermost_call
        if self.outermost_call == outermost_call:
            self.call += 1
        else:
            self.outermost_call = outermost_call
            self.call = 0
        return self.call
