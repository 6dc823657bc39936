"""Captures that wait in memory for a trigger: those of the last steps, within a limit of bytes."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

from probes.hooks.capture.recorder import Recorder
from probes.hooks.capture.run_state import LATE, CaptureWriter, RunState
from probes.runner.capture_buffer import BufferedCapture, BufferingWriter
from probes.signature import Descriptor

COPY_OVERHEAD = 256  # bytes that a waiting capture needs in addition to its payload


class WaitingCapture(NamedTuple):
    """A capture that waits; `epoch` is its own, `serial` counts the captures of the run."""

    writer: TriggerWriter
    epoch: int
    capture: BufferedCapture
    serial: int

    @property
    def nbytes(self) -> int:
        """The memory that it needs, in bytes."""
        return len(self.capture.payload) + COPY_OVERHEAD


class TriggerWriter(BufferingWriter):
    """Puts the captures of one recorder into the buffer instead of the journal.

    Args:
        buffer: where they wait.
        recorder: its account counts what is written or dropped.
    """

    def __init__(self, buffer: TriggerBuffer, recorder: Recorder) -> None:
        super().__init__()
        self.buffer = buffer
        self.recorder = recorder
        self.window = buffer.windows[recorder.key.probe]
        self.journal: CaptureWriter | None = None
        self.numbered_by: CaptureWriter | None = None
        self.numbers: dict[int, tuple[Descriptor, int]] = {}

    def over(self, journal: CaptureWriter) -> TriggerWriter:
        """The writer itself; descriptors for another journal are dropped."""
        if journal is not self.journal:
            self.journal = journal
            self.descriptors = []
        return self

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""
        capture = self.copied(descriptor, step, microstep, call, backward, address, nbytes, flags)
        known = capture.descriptor.epoch
        epoch = self.buffer.moment.epoch if known is None else known
        self.buffer.take(WaitingCapture(self, epoch, capture, self.buffer.serial), self.window)

    def number(self, waiting: WaitingCapture, writer: CaptureWriter, epoch: int) -> int:
        """The writer's number of the descriptor of a capture that is written in an epoch."""
        if writer is not self.numbered_by:
            self.numbered_by = writer
            self.numbers = {}
        descriptor = waiting.capture.descriptor
        if id(descriptor) not in self.numbers:
            number = writer.descriptor(descriptor._replace(epoch=None if waiting.epoch == epoch else waiting.epoch))
            self.numbers[id(descriptor)] = descriptor, number  # the descriptor is kept, so that no other gets its id
        return self.numbers[id(descriptor)][1]


class StepWindow:
    """The last steps of one probe.

    Attributes:
        before: how many steps before the open one are kept; only steps in which the probe captured anything count.
        past: those steps, the oldest first.
        open: captures of the open step.
    """

    def __init__(self, before: int) -> None:
        self.before = before
        self.past: deque[deque[WaitingCapture]] = deque()
        self.open: deque[WaitingCapture] = deque()

    def oldest(self) -> WaitingCapture | None:
        """The oldest waiting capture."""
        while self.past and not self.past[0]:
            self.past.popleft()
        step = self.past[0] if self.past else self.open
        return step[0] if step else None

    def drop_oldest(self) -> None:
        """Remove the oldest waiting capture."""
        (self.past[0] if self.past else self.open).popleft()

    def all(self) -> list[WaitingCapture]:
        """All waiting captures."""
        return [waiting for step in (*self.past, self.open) for waiting in step]


class TriggerBuffer:
    """The captures of the open step and of the last steps before it.

    Args:
        moment: the run's clock.
        before: probe -> how many steps before the open one are kept of it.
        limit: most bytes of memory that captures take while they wait; beyond it the oldest are dropped.

    Attributes:
        nbytes: bytes that they take.
        crowded: captures that were dropped because of the limit since the buffer was last written out.
        serial: number of the next capture.
    """

    def __init__(self, moment: RunState, before: Mapping[str, int], limit: int) -> None:
        self.moment = moment
        self.limit = limit
        self.windows = {probe: StepWindow(steps) for probe, steps in before.items()}
        self.nbytes = 0
        self.crowded = 0
        self.serial = 0

    def take(self, waiting: WaitingCapture, window: StepWindow) -> None:
        """Keep a capture of the open step."""
        self.serial += 1
        window.open.append(waiting)
        self.nbytes += waiting.nbytes
        while self.nbytes > self.limit:
            self._crowd_out()

    def _crowd_out(self) -> None:
        """Drop the oldest waiting capture."""
        candidates = [(oldest.serial, window, oldest) for window in self.windows.values() if (oldest := window.oldest()) is not None]
        _, window, oldest = min(candidates, key=lambda candidate: candidate[0])
        window.drop_oldest()
        self._drop(oldest, "ring full")
        self.crowded += 1

    def end_step(self, keep: bool, *, age: bool = True) -> None:
        """Begin a new step.

        Args:
            keep: whether the step that ends was committed; a step whose body raised is dropped.
            age: whether steps that are older than their probe keeps are dropped.
        """
        for window in self.windows.values():
            if window.open:
                step, window.open = window.open, deque()
                window.past.append(step if keep else self._dropped(step))
            while age and len(window.past) > window.before:
                self._dropped(window.past.popleft())

    def _dropped(self, step: deque[WaitingCapture]) -> deque[WaitingCapture]:
        for waiting in step:
            self._drop(waiting, "filtered")
        return deque()

    def _drop(self, waiting: WaitingCapture, reason: str) -> None:
        self.nbytes -= waiting.nbytes
        if waiting.epoch == self.moment.epoch:  # the counters of an earlier epoch are closed, and include it
            waiting.writer.recorder.account.skip(reason)

    def end_epoch(self) -> None:
        """Count captures of this epoch that still wait as not written in it."""
        for waiting in self.waiting():
            if waiting.epoch == self.moment.epoch:
                waiting.writer.recorder.account.skip("filtered")

    def waiting(self) -> list[WaitingCapture]:
        """All waiting captures, in the order of capture."""
        return sorted((waiting for window in self.windows.values() for waiting in window.all()), key=attrgetter("serial"))

    def write_out(self, writer: CaptureWriter, phase: str, step: int) -> dict[str, int]:
        """Write every waiting capture with its own clock, and empty the buffer.

        Args:
            writer: the journal.
            phase: phase of the step that will commit them.
            step: that step; captures of others are late.

        Returns:
            What was written: `steps`, `captures`, `bytes`, and those `crowded_out` before.
        """
        written, crowded = self.waiting(), self.crowded
        here = (self.moment.epoch, phase, step)
        for waiting in written:
            self._write(waiting, writer, 0 if _step_of(waiting) == here else LATE)
        for window in self.windows.values():
            window.past, window.open = deque(), deque()
        self.nbytes = self.crowded = 0
        payload = sum(len(waiting.capture.payload) for waiting in written)
        return {"steps": len({*map(_step_of, written)}), "captures": len(written), "bytes": payload, "crowded_out": crowded}

    def _write(self, waiting: WaitingCapture, writer: CaptureWriter, flags: int) -> None:
        number = waiting.writer.number(waiting, writer, self.moment.epoch)
        capture = waiting.capture
        address = ctypes.cast(ctypes.c_char_p(capture.payload), ctypes.c_void_p).value or 0
        size = len(capture.payload)
        writer.add(number, capture.step, capture.microstep, capture.call, capture.backward, address, size, flags)
        account = waiting.writer.recorder.account
        account.written += 1
        account.nbytes += size


def _step_of(waiting: WaitingCapture) -> tuple[int, str, int]:
    return waiting.epoch, waiting.capture.descriptor.key.phase, waiting.capture.step
