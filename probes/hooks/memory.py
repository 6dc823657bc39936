"""The effect of a module's call on the memory of an accelerator: bytes allocated at its begin, kept at its end, and the peak between."""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn import Module

from probes.hooks.capture.compiled import is_compiling
from probes.hooks.capture.model_copies import HookOfOurs
from probes.hooks.capture.pipeline import Pipeline
from probes.hooks.capture.run_state import CaptureClock, OutermostCall
from probes.hooks.capture.tap import Tap
from probes.signature import MEMORY, Signature
from probes.tensors import graph_task


class Counters(Protocol):
    """The allocator of a device; `torch.cuda` is one."""

    def memory_allocated(self, device: Any) -> int:
        """Bytes of allocated tensors."""

    def max_memory_allocated(self, device: Any) -> int:
        """The maximum since the last reset."""

    def reset_peak_memory_stats(self, device: Any) -> None:
        """Reset the maximum."""


@dataclass(eq=False)
class RunningCall:
    """A call that is running.

    Attributes:
        at: the outermost call that it is part of.
        call: which call of its module within that.
        before: bytes allocated when it began.
        peak: the most that were allocated so far.
        thread: the thread that runs it.
    """

    at: OutermostCall
    call: int
    before: int
    peak: int
    thread: int


class MemoryMeter:
    """Nested calls on one device: the peak of a call is also one of the calls around it.

    Args:
        counters: the allocator; its peak counter is reset.
        device: the device that is requested.
    """

    def __init__(self, counters: Counters, device: torch.device) -> None:
        self.counters = counters
        self.device = device
        self.running: list[RunningCall] = []

    def enter(self, at: OutermostCall, call: int) -> RunningCall:
        """A call begins."""
        thread = get_ident()
        self.running = [frame for frame in self.running if frame.at is at or frame.thread != thread]  # remove calls that raised
        self._look()
        now = self.counters.memory_allocated(self.device)
        found = RunningCall(at, call, now, now, thread)
        self.running.append(found)
        return found

    def leave(self, frame: RunningCall) -> tuple[int, int, int]:
        """A call is over: bytes before it, bytes that it left allocated, and the peak above the start."""
        self._look()
        after = self.counters.memory_allocated(self.device)
        inner = self.running[self.running.index(frame) :]
        self.running = [one for one in self.running if one.thread != frame.thread or one not in inner]
        return frame.before, after - frame.before, frame.peak - frame.before

    def _look(self) -> None:
        peak = self.counters.max_memory_allocated(self.device)
        for frame in self.running:
            frame.peak = max(frame.peak, peak)
        self.counters.reset_peak_memory_stats(self.device)


class MemoryTap(Tap):
    """Captures the effect of a module's calls on memory, with a hook on either side of its forward."""

    __slots__ = ("frames", "meter", "module")

    def begin(self, module: Module, meter: MemoryMeter) -> Self:
        """Set the module, and the meter that all taps of a device share."""
        self.module = module
        self.meter = meter
        self.frames: list[RunningCall] = []
        return self

    def attach(self) -> list[Any]:
        """Register both hooks and return their handles; no other hook of probes runs between them and the forward."""
        return [
            self.module.register_forward_pre_hook(_Before(self)),
            self.module.register_forward_hook(_After(self), prepend=True),
        ]

    def before(self) -> None:
        """The module is about to run."""
        at = None if not self.gate.due or is_compiling() or graph_task() != -1 else self.state.here()
        if at is None:
            return
        call, thread = at.number(id(self.module), "memory"), get_ident()
        if self.wants(at, call):
            self.frames = [frame for frame in self.frames if frame.at is at or frame.thread != thread]  # remove calls that raised
            try:
                self.frames.append(self.meter.enter(at, call))
            except Exception as error:  # the hook boundary: a failing probe must not change training
                self.failed(error, self.path, at)

    def after(self) -> None:
        """The module has run."""
        at = self.state.here() if self.frames and not is_compiling() and graph_task() == -1 else None
        if at is None:
            return
        call, thread = at.running.get(id(self.module)), get_ident()
        found = [frame for frame in self.frames if frame.at is at and frame.thread == thread and call in (None, frame.call)]
        if found:
            self.frames.remove(found[-1])
            self.account.fired += 1
            self.take(found[-1], at, found[-1].call)

    def handle(self, value: object, at: CaptureClock, call: int) -> None:
        """Store the three numbers of a call that is over."""
        assert isinstance(value, RunningCall)
        numbers = torch.tensor(self.meter.leave(value))
        recorder = self.recorder(self.root)
        if recorder.coords is None and recorder.pipeline is None:
            recorder.dims, recorder.coords = MEMORY.dims, MEMORY
        elif recorder.pipeline is not None and not isinstance(recorder.pipeline, _Labelled):
            recorder.pipeline = _Labelled(recorder.pipeline.transforms, None)
        self.put(recorder, numbers, at, call)


class _Labelled(Pipeline):
    """Transforms of the three numbers, which have names."""

    __slots__ = ()

    def first(self, tensor: Tensor) -> Signature:
        """The signature of the numbers."""
        return MEMORY


class _Hook(HookOfOurs):
    """A hook that a copy or a pickle of the model loses."""

    def __init__(self, tap: MemoryTap) -> None:
        self.tap = tap


class _Before(_Hook):
    def __call__(self, module: Module, args: object) -> None:
        if module is self.tap.module:
            self.tap.before()


class _After(_Hook):
    def __call__(self, module: Module, args: object, output: object) -> None:
        if module is self.tap.module:
            self.tap.after()
