"""The small sinks of a run: what their probes capture is kept until the step's commit, then handed to them as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ctypes import string_at
from itertools import product
from pathlib import Path
from struct import unpack
from typing import Any, NamedTuple

import torch

from probes.clock import Clock, SeriesKey
from probes.component import Number, Reading, Sink, SinkSession
from probes.errors import RunError
from probes.hooks.capture.run_state import Writer
from probes.plan import Plan
from probes.signature import Coord

LATE = 1  # the journal's flag of a capture whose step was committed before it arrived

PLAIN = {torch.float64: "d", torch.float32: "f", torch.int64: "q", torch.int32: "i", torch.uint8: "B", torch.bool: "?"}
"""Dtypes that Python reads out of memory itself, ten times as fast."""


class Form(NamedTuple):
    """What the captures of one descriptor have in common.

    Attributes:
        key: their series.
        epoch: their epoch.
        start: steps of their phase in earlier epochs; None where that is not known.
        labels: a label for each element.
        dtype: the stored one.
        sinks: names of the small sinks that take them.
    """

    key: SeriesKey
    epoch: int
    start: int | None
    labels: tuple[str, ...]
    dtype: torch.dtype
    sinks: tuple[str, ...]


class SinkSessions:
    """The open small sinks of a run.

    A sink that fails is given up, and said so; what is stored in HDF5 is not touched by it.

    Args:
        plan: the plan; its probes name their sinks.
        directory: the run directory.
        rank: rank of this process.

    Attributes:
        failures: what went wrong, by the name of the sink.
    """

    def __init__(self, plan: Plan, directory: Path, rank: int) -> None:
        spec = plan.loaded.spec
        self.directory = directory
        self.rank = rank
        self.sinks = {name: sink for name, sink in spec.sinks.items() if sink.kind != "hdf5"}
        chosen = {name: () if probe.edit else tuple(probe.sinks or spec.sinks) for name, probe in spec.probes.items()}
        self.takers = {name: tuple(one for one in wanted if one in self.sinks) for name, wanted in chosen.items()}
        self.stored = {name for name, wanted in chosen.items() if not wanted or set(wanted) - set(self.sinks)}
        self.strict = spec.on_error == "raise"
        self.failures: dict[str, str] = {}
        self.told: set[str] = set()
        self.open: dict[str, SinkSession] | None = None
        self.split: Split | None = None

    def over(self, writer: Writer, epoch: int, starts: Mapping[str, int]) -> Writer:
        """A writer for an epoch: the given one where there are no small sinks, else one that keeps captures for them too.

        Args:
            writer: the journal.
            epoch: the epoch.
            starts: steps of every phase in earlier epochs.
        """
        if not self.sinks:
            return writer
        if self.open is None:
            self.open = {name: outlet for name, sink in self.sinks.items() if (outlet := self._opened(name, sink)) is not None}
        self.split = Split(self, writer, epoch, dict(starts))
        return self.split

    def _opened(self, name: str, sink: Sink) -> SinkSession | None:
        with _Guard(self, name):
            return sink.open(self.directory, self.rank)
        return None

    def end_step(self, keep: bool) -> RunError | None:
        """Hand what the committed step captured to the sinks, or drop it.

        Returns:
            The failure of a sink, told once, where the spec says that it ends the run.
        """
        kept: list[Kept] = []
        if self.split is not None:
            kept, self.split.kept = self.split.kept, kept
        if keep and kept:
            self._hand_out(kept)
        fresh = [text for name, text in self.failures.items() if name not in self.told]
        self.told |= set(self.failures)
        return RunError("; ".join(fresh)) if fresh and self.strict else None

    def _hand_out(self, kept: list[Kept]) -> None:
        for name, outlet in list((self.open or {}).items()):
            with _Guard(self, name):
                readings = [_reading(capture, self.rank) for capture in kept if name in capture.form.sinks]
                if readings:
                    outlet.step(readings)

    def close(self) -> None:
        """End the sinks; what no commit made part of the run is dropped."""
        sink_sessions, self.open, self.split = self.open or {}, None, None
        for name, outlet in sink_sessions.items():
            with _Guard(self, name):
                outlet.close()

    def failed(self, name: str, why: str) -> None:
        """Give a sink up."""
        self.failures.setdefault(name, f"sink `{name}` was given up: {why}")
        (self.open or {}).pop(name, None)


class _Guard:
    """Turns what a sink raises into its end."""

    def __init__(self, sink_sessions: SinkSessions, name: str) -> None:
        self.sink_sessions = sink_sessions
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Exception):  # the boundary: a failing sink must not end training
            self.sink_sessions.failed(self.name, str(error) or type(error).__name__)
            return True
        return False


class Kept(NamedTuple):
    """A capture that waits for its step's commit."""

    form: Form
    step: int
    microstep: int
    call: int
    backward: int
    late: bool
    payload: bytes


class Split:
    """A writer that hands captures on to the journal, and keeps the small ones that a small sink wants."""

    def __init__(self, sink_sessions: SinkSessions, journal: Writer, epoch: int, starts: dict[str, int]) -> None:
        self.sink_sessions = sink_sessions
        self.journal = journal
        self.store: Callable[..., None] = journal.add
        self.epoch = epoch
        self.starts = starts
        self.routes: list[tuple[int | None, Form | None]] = []
        self.kept: list[Kept] = []

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
        number = self.journal.descriptor(key, dtype, shape, dims, coords, attrs, epoch) if key.probe in self.sink_sessions.stored else None
        sinks = tuple(self._takers(key, shape))
        where, start = (self.epoch, self.starts.get(key.phase, 0)) if epoch is None else (epoch, None)
        form = Form(key, where, start, tuple(labels(shape, dims, coords)), getattr(torch, dtype), sinks) if sinks else None
        self.routes.append((number, form))
        return len(self.routes) - 1

    def _takers(self, key: SeriesKey, shape: tuple[int, ...]) -> Iterator[str]:
        """The sinks that a series goes to; one that is given more than it takes is given up."""
        elements = torch.Size(shape).numel()
        for name in self.sink_sessions.takers[key.probe]:
            most = self.sink_sessions.sinks[name].largest
            if most is None or elements <= most:
                yield name
            else:
                hint = "add a transform that makes less of it, raise `max_elements`, or name other `sinks` in the probe"
                self.sink_sessions.failed(name, f"`{key}` has {elements} elements, and it takes {most} at most; {hint}")

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""
        number, form = self.routes[descriptor]
        if number is not None:
            self.store(number, step, microstep, call, backward, address, nbytes, flags)
        if form is not None:
            payload = string_at(address, nbytes) if nbytes else b""
            self.kept.append(Kept(form, step, microstep, call, backward, bool(flags & LATE), payload))


def _reading(kept: Kept, rank: int) -> Reading:
    """A capture as plain numbers."""
    form, phase = kept.form, kept.form.key.phase
    known = -1 if form.start is None else form.start + kept.step
    clock = Clock(form.epoch, phase, kept.step, known, kept.microstep, kept.call, kept.backward, rank)
    return Reading(form.key, clock, kept.late, dict(zip(form.labels, numbers(kept.payload, form.dtype), strict=True)))


def labels(shape: tuple[int, ...], dims: tuple[str, ...] | None, coords: Mapping[str, Coord]) -> Iterator[str]:
    """A label for each element in row-major order: names along its axes, or places where there are none."""
    names = dims or ("",) * len(shape)
    axes = [[str(label) for label in coords.get(name, range(size))] for name, size in zip(names, shape, strict=True)]
    return ("/".join(place) for place in product(*axes))


def numbers(payload: bytes, dtype: torch.dtype) -> list[Number]:
    """The elements of a capture; a complex one is a text, as what is not finite is."""
    if not payload:
        return []
    letter = PLAIN.get(dtype)
    if letter is not None:
        return [_plain(number) for number in unpack(f"={len(payload) // dtype.itemsize}{letter}", payload)]
    tensor = torch.frombuffer(bytearray(payload), dtype=dtype)
    if dtype.is_complex:
        return [str(number) for number in tensor.to(torch.complex128).tolist()]
    return [_plain(number) for number in (tensor.double() if dtype.is_floating_point else tensor).tolist()]


def _plain(number: float | int | bool) -> Number:
    return str(number) if number != number or number in (float("inf"), float("-inf")) else number
