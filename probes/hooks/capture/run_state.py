"""The state of the run that every hook reads: its clock, and whether a probe is due."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock, get_ident
from typing import Any, Protocol

from torch.nn import Module

from probes.hooks.capture.model_copies import HookOfOurs
from probes.hooks.capture.pinned import PinnedBuffer
from probes.hooks.capture.tracing import runs_eagerly
from probes.signature import Descriptor

LATE = 1  # journal flag: the capture's step was committed before it arrived
_making = Lock()


class CaptureWriter(Protocol):
    """A writer of captures, such as the journal."""

    def descriptor(self, about: Descriptor) -> int:
        """The number under which captures of this series, dtype and shape are added."""

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""


class ScaleNotes(Protocol):
    """A store for the loss scale of a gradient."""

    def note(self, probe: str, at: Any) -> None:
        """Store the scale of the backward that is running, if it has one."""


class StepState:
    """The state of one step; its captures keep a reference to it.

    Attributes:
        due: the gates that are open for it.
        over: whether it was committed or dropped, so that a capture of it is late.
        dropped: whether it was dropped, so that nothing of it is captured any more.
        paused: whether another step runs within it, so that its captures are set aside.
        differentiated: whether a gradient has come in it, so that a backward ran.
        overlapped: whether a call of another step ran at the same time, so that it is not clear whose a hook's firing was.
        numbered: how often each value was logged in it, by the binding that captures it and by leaf; None until one is.
    """

    __slots__ = ("differentiated", "dropped", "due", "numbered", "over", "overlapped", "paused")

    def __init__(self, due: frozenset[Gate] = frozenset()) -> None:
        self.due = due
        self.over = False
        self.dropped = False
        self.paused = False
        self.differentiated = False
        self.overlapped = False
        self.numbered: dict[object, dict[str, int]] | None = None


class OutermostCall:
    """An outermost call into the model's tree: the clock of its captures.

    The number of a module's call is drawn once, when that call enters, and is the same for its inputs, outputs and gradients.

    Attributes:
        epoch: its epoch.
        phase: its phase.
        step: step within (epoch, phase).
        microstep: outermost call within the step.
        opened: its step.
        counted: the modules, by id, whose calls are numbered when they enter.
        due: the gates that are open for it, where calls of several steps overlap; None if the gates themselves tell.
        drawn: how many calls of a module have a number, by the id of the module; of those that nobody saw enter, by id and side.
        running: the number of the innermost call of each module that has not returned, by the id of the module.
    """

    __slots__ = ("counted", "drawn", "due", "epoch", "microstep", "opened", "phase", "running", "step")

    def __init__(self, epoch: int, phase: str, step: int, microstep: int, opened: StepState, counted: frozenset[int] = frozenset()) -> None:
        self.epoch = epoch
        self.phase = phase
        self.step = step
        self.microstep = microstep
        self.opened = opened
        self.counted = counted
        self.due: frozenset[Gate] | None = None
        self.drawn: dict[Hashable, int] = {}
        self.running: dict[int, int] = {}

    @runs_eagerly
    def enter(self, module: int) -> int | None:
        """A call of a module begins; returns the number of the outer call of it, in recursion."""
        around = self.running.get(module)
        self.running[module] = number = self.drawn.get(module, 0)
        self.drawn[module] = number + 1
        return around

    @runs_eagerly
    def leave(self, module: int, around: int | None) -> None:
        """The call is over: it returned or raised."""
        if around is None:
            del self.running[module]
        else:
            self.running[module] = around

    def over(self) -> None:
        """The outermost call itself has returned or raised."""

    def number(self, module: int, side: str) -> int:
        """The number of the running call of a module.

        A call that nobody saw enter, such as that of a replica or one within a compiled function, has the next of its side.
        """
        running = self.running.get(module)
        if running is not None:
            return running
        number = self.drawn.get((module, side), 0)
        self.drawn[module, side] = number + 1
        return number


class CaptureClock(Protocol):
    """The clock of a capture: that of an outermost call, the run's state for parameters, or the clock that an armed hook kept."""

    epoch: int
    phase: str
    step: int
    microstep: int
    opened: StepState

    @property
    def due(self) -> frozenset[Gate] | None:
        """The gates that are open for it, where calls of several steps overlap; None if the gates themselves tell."""


class RunState:
    """The run's clock as the hooks see it; the engine updates it, hooks only read it.

    Attributes:
        epoch: epoch that is open, or was last.
        phase: phase of the step that is open, or was last.
        step: step within (epoch, phase).
        microstep: outermost call within the step; -1 outside any.
        opened: that step.
        step_number: changes with every step.
        calls: the outermost call that each thread is in.
        writer: where captures go; None while no epoch is open.
        open: whether a step is open.
        rank: rank of this process.
        scales: the loss scales; None until a loss is scaled.
        pinned: where captures of an accelerator wait until the step ends; None until the first comes.
        collect: opens the step of what a compiled function has left, where anything may be compiled; a gradient may be the first
            that is seen of it.
        aside: the threads whose calls do not concern the run, for a while.
        logged: what the program has logged for transforms in each open step, by name.
        within: takes a paused step's captures up again while a body runs; it stores a gradient of that step.
        samples: gives the sample ids of an open step, by its phase and number, as far as they are known.
    """

    __slots__ = (
        "aside",
        "calls",
        "collect",
        "epoch",
        "logged",
        "microstep",
        "open",
        "opened",
        "phase",
        "pinned",
        "rank",
        "samples",
        "scales",
        "step",
        "step_number",
        "within",
        "writer",
    )

    due: frozenset[Gate] | None = None

    def __init__(self, rank: int = 0) -> None:
        self.epoch = 0
        self.phase = "train"
        self.step = 0
        self.microstep = -1
        self.opened = StepState()
        self.step_number = 0
        self.calls: dict[int, OutermostCall] = {}
        self.writer: CaptureWriter | None = None
        self.open = False
        self.rank = rank
        self.scales: ScaleNotes | None = None
        self.pinned: PinnedBuffer | None = None
        self.collect: Callable[[], None] | None = None
        self.aside: set[int] = set()
        self.logged: dict[StepState, dict[str, Any]] = {}
        self.within: Callable[[StepState], AbstractContextManager[None]] = lambda _: nullcontext()
        self.samples: Callable[[str, int], tuple[int | str, ...]] = lambda phase, step: ()

    def pinned_buffer(self) -> PinnedBuffer:
        """The buffer for captures of an accelerator."""
        with _making:
            if self.pinned is None:
                self.pinned = PinnedBuffer()
            return self.pinned

    def here(self) -> OutermostCall | None:
        """The outermost call of this thread; a thread that works for the only one, such as for a replica, belongs to that call."""
        calls = self.calls
        found = calls.get(get_ident())
        if found is None and len(calls) == 1 and get_ident() not in self.aside:
            found = next(iter(calls.values()), None)
        return found


class Gate:
    """Whether a schedule is due in the open step; decided once per step, shared by all hooks of that schedule."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due = False

    def settle(self) -> None:
        """Bring `due` up to date; a plain gate is set by the schedule."""


class AnyGate(Gate):
    """Open if one of several gates is: the gate of a hook for probes with different schedules."""

    __slots__ = ("members",)

    def __init__(self, members: Iterable[Gate]) -> None:
        super().__init__()
        self.members = tuple(members)

    def settle(self) -> None:
        """Open where a member is open."""
        self.due = any(member.due for member in self.members)


Within = Callable[[int, int], bool]
"""Whether a schedule includes (microstep, call)."""


class ModuleHook(HookOfOurs):
    """A hook object on a module: one per module and side of its call, for any number of probes.

    It holds no tensor, no lock and no file, and is left out when the model is copied, pickled or scripted. Only what a compiled
    graph copied for it waits in `traced` until the call has returned.

    Attributes:
        side: which side of the call it is on.
        module: id of the module.
        table: id of the module's table of forward hooks.
    """

    side = ""
    __slots__ = ("gate", "module", "repeated", "state", "table", "target", "traced")

    def __init__(self, target: str, state: RunState, gate: Gate, module: Module) -> None:
        self.target = target
        self.state = state
        self.gate = gate
        self.module = id(module)
        self.table = id(module._forward_hooks)
        self.repeated = 0
        self.traced: list[Any] = []

    def is_moved(self, module: Module) -> bool:
        """Whether PyTorch has put the hook on another module: `torch.ao.quantization` does so when it fuses or swaps modules.

        A shallow copy, and a replica of `DataParallel`, share the table of hooks of the module instead; its calls are the module's.
        """
        return id(module) != self.module and id(module._forward_hooks) != self.table

    def repeat(self) -> int:
        """A number for a recompute of activation checkpointing; the order of the numbers shows which call each repeats."""
        self.repeated += 1
        return self.repeated
