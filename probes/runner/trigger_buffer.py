"""Captures that wait in memory for something to happen: those of the last steps, within a bound of bytes."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

from probes.clock import SeriesKey
from probes.hooks.capture.recorder import LATE, Recorder
from probes.hooks.capture.run_state import Moment, Writer
from probes.signature import Coord

COPY_OVERHEAD = 256  # bytes that a waiting capture takes beside its payload


class Form(NamedTuple):
    """What captures of one series, dtype and shape have in common; `epoch` is theirs."""

    key: SeriesKey
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...] | None
    coords: dict[str, Coord]
    attrs: dict[str, object]
    epoch: int


class Held(NamedTuple):
    """A capture that waits, with its own clock; `serial` counts the captures of the run."""

    shelf: BufferWriter
    form: Form
    step: int
    microstep: int
    call: int
    backward: int
    payload: bytes
    serial: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return len(self.payload) + COPY_OVERHEAD


class BufferWriter:
    """Where the captures of one recorder go in place of the journal.

    Args:
        ring: holds them.
        recorder: its books are told what becomes of them.
    """

    def __init__(self, ring: TriggerBuffer, recorder: Recorder) -> None:
        self.ring = ring
        self.recorder = recorder
        self.lane = ring.lanes[recorder.key.probe]
        self.forms: list[Form] = []
        self.journal: Writer | None = None
        self.writer: Writer | None = None
        self.numbers: dict[int, tuple[Form, int]] = {}

    def over(self, journal: Writer) -> BufferWriter:
        """The shelf itself; numbers of the journal before are forgotten with those that asked for them."""
        if journal is not self.journal:
            self.journal = journal
            self.forms = []
        return self

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
        """A number for captures of this series, dtype and shape."""
        self.forms.append(Form(key, dtype, shape, dims, coords, attrs, self.ring.moment.epoch if epoch is None else epoch))
        return len(self.forms) - 1

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""
        payload = ctypes.string_at(address, nbytes) if nbytes else b""
        self.ring.take(Held(self, self.forms[descriptor], step, microstep, call, backward, payload, self.ring.serial), self.lane)

    def number(self, form: Form, writer: Writer, epoch: int) -> int:
        """The number that a writer gives to captures of a form."""
        if writer is not self.writer:
            self.writer = writer
            self.numbers = {}
        if id(form) not in self.numbers:
            about = (form.key, form.dtype, form.shape, form.dims, form.coords, form.attrs)
            number = writer.descriptor(*about, None if form.epoch == epoch else form.epoch)
            self.numbers[id(form)] = form, number  # the form is kept, so that no other gets its id
        return self.numbers[id(form)][1]


class Lane:
    """The steps of one probe that wait.

    Attributes:
        before: how many steps before the open one are kept; a step counts in which the probe captured anything.
        past: those steps, the oldest first.
        open: captures of the open step.
    """

    def __init__(self, before: int) -> None:
        self.before = before
        self.past: deque[deque[Held]] = deque()
        self.open: deque[Held] = deque()

    def oldest(self) -> Held | None:
        """The capture that has waited longest."""
        while self.past and not self.past[0]:
            self.past.popleft()
        step = self.past[0] if self.past else self.open
        return step[0] if step else None

    def drop_oldest(self) -> None:
        """Forget it."""
        (self.past[0] if self.past else self.open).popleft()

    def all(self) -> list[Held]:
        """Everything that waits."""
        return [one for step in (*self.past, self.open) for one in step]


class TriggerBuffer:
    """The captures of the step that is open and of the last ones before it.

    Args:
        moment: the run's clock.
        before: probe -> how many steps before the open one are kept of it.
        room: most bytes of memory that captures take while they wait; beyond it the oldest go.

    Attributes:
        nbytes: bytes that they take.
        crowded: captures that had to go since the ring was poured out, because there was no room.
        serial: number of the next capture.
    """

    def __init__(self, moment: Moment, before: Mapping[str, int], room: int) -> None:
        self.moment = moment
        self.room = room
        self.lanes = {probe: Lane(steps) for probe, steps in before.items()}
        self.nbytes = 0
        self.crowded = 0
        self.serial = 0

    def take(self, held: Held, lane: Lane) -> None:
        """Keep a capture of the open step."""
        self.serial += 1
        lane.open.append(held)
        self.nbytes += held.nbytes
        while self.nbytes > self.room:
            self._crowd_out()

    def _crowd_out(self) -> None:
        """Let the capture go that has waited longest."""
        waiting = [(oldest.serial, lane, oldest) for lane in self.lanes.values() if (oldest := lane.oldest()) is not None]
        _, lane, oldest = min(waiting, key=lambda one: one[0])
        lane.drop_oldest()
        self._let_go(oldest, "ring full")
        self.crowded += 1

    def end_step(self, keep: bool, *, age: bool = True) -> None:
        """Begin a new step.

        Args:
            keep: whether the step that ends was committed; one whose body raised is forgotten.
            age: whether what is older than its probe wants goes.
        """
        for lane in self.lanes.values():
            if lane.open:
                step, lane.open = lane.open, deque()
                lane.past.append(step if keep else self._forgotten(step))
            while age and len(lane.past) > lane.before:
                self._forgotten(lane.past.popleft())

    def _forgotten(self, step: deque[Held]) -> deque[Held]:
        for one in step:
            self._let_go(one, "filtered")
        return deque()

    def _let_go(self, held: Held, reason: str) -> None:
        self.nbytes -= held.nbytes
        if held.form.epoch == self.moment.epoch:  # the books of an earlier epoch are closed, and it is in them
            held.shelf.recorder.account.skip(reason)

    def end_epoch(self) -> None:
        """Say in the books of the epoch that what still waits was not written in it."""
        for one in self.waiting():
            if one.form.epoch == self.moment.epoch:
                one.shelf.recorder.account.skip("filtered")

    def waiting(self) -> list[Held]:
        """Everything that waits, in the order of its capture."""
        return sorted((one for lane in self.lanes.values() for one in lane.all()), key=attrgetter("serial"))

    def pour(self, writer: Writer, phase: str, step: int) -> dict[str, int]:
        """Write all that waits with its own clocks, and forget it.

        Args:
            writer: the journal.
            phase: phase of the step that will commit it.
            step: that step; captures of others are late.

        Returns:
            What was written: `steps`, `captures`, `bytes`, and those `crowded_out` before.
        """
        poured, crowded = self.waiting(), self.crowded
        for held in poured:
            here = held.form.epoch == self.moment.epoch and held.form.key.phase == phase and held.step == step
            self._write(held, writer, 0 if here else LATE)
        for lane in self.lanes.values():
            lane.past, lane.open = deque(), deque()
        self.nbytes = self.crowded = 0
        steps = {(one.form.epoch, one.form.key.phase, one.step) for one in poured}
        payload = sum(len(one.payload) for one in poured)
        return {"steps": len(steps), "captures": len(poured), "bytes": payload, "crowded_out": crowded}

    def _write(self, held: Held, writer: Writer, flags: int) -> None:
        number = held.shelf.number(held.form, writer, self.moment.epoch)
        address = ctypes.cast(ctypes.c_char_p(held.payload), ctypes.c_void_p).value or 0
        writer.add(number, held.step, held.microstep, held.call, held.backward, address, len(held.payload), flags)
        account = held.shelf.recorder.account
        account.written += 1
        account.nbytes += len(held.payload)
