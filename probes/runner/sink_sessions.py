"""The sinks of a run: captures for them and for rules wait until their step is committed, and are then handed over as numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from struct import unpack
from typing import Any, NamedTuple

import torch

from probes.clock import Clock, SeriesKey
from probes.component import Number, Reading, Sink, SinkContext, SinkSession
from probes.errors import RunError
from probes.hooks.capture.run_state import LATE, CaptureWriter
from probes.plan import Plan
from probes.printable import error_text
from probes.run_directory.ledger import SealedFileInfo
from probes.runner.capture_buffer import BufferedCapture, BufferingWriter
from probes.runner.rules.evaluator import EvaluatedNumbers, RuleEvaluator
from probes.signature import Descriptor
from probes.sinks.kernels.run_file import on_rank

MOST_ROOTS = 50  # limit for a tag; MLflow takes 8,000 characters
PLAIN = {torch.float64: "d", torch.float32: "f", torch.int64: "q", torch.int32: "i", torch.uint8: "B", torch.bool: "?"}
"""Dtypes that `struct` reads, ten times as fast as torch."""


class RunFacts(NamedTuple):
    """The facts on a run that sinks keep next to the captures.

    Attributes:
        tags: what is known about the run at its start.
        closing: gives what is known at its end.
    """

    tags: Mapping[str, str]
    closing: Callable[[], Mapping[str, str]]


def closing_tags(sealed: Sequence[SealedFileInfo]) -> dict[str, str]:
    """The tags of a run for a tracker: the ledger head covers all sealed files; the roots are those of the last ones."""
    roots = {one.file: one.captures_root for one in sealed[-MOST_ROOTS:]}
    return {"probes.ledger_head": sealed[-1].head, "probes.captures_roots": json.dumps(roots)} if sealed else {}


class SinkSessions:
    """The open sinks of a run, and its rules; a run without any has none.

    A sink that fails is disabled, and the summary says so; the record and the other sinks continue.

    Args:
        plan: the plan; its probes name their sinks.
        directory: the run directory.
        rank: rank of this process.
        say: reports a failure when it happens.
        evaluator: the rules, which get the same captures as a sink; None without any.
        facts: what the sinks keep in addition to the captures.

    Attributes:
        failures: what went wrong, by the name of the sink.
    """

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        rank: int,
        say: Callable[[str], None],
        evaluator: RuleEvaluator | None = None,
        facts: RunFacts | None = None,
    ) -> None:
        spec = plan.loaded.spec
        self.say = say
        self.facts = facts or RunFacts({}, dict)
        self.name = spec.name
        self.identity = plan.loaded.identity_hash
        self.directory = directory
        self.rank = rank
        self.sinks = spec.reading_sinks
        self.limits = {name: sink.most_elements() for name, sink in self.sinks.items()}
        self.takers = {name: tuple(spec.sinks_of(name)) for name in spec.probes}
        self.recorded = {name for name in spec.probes if spec.is_recorded(name)}
        self.strict = spec.on_error == "raise"
        self.failures: dict[str, str] = {}
        self.evaluator = evaluator
        self.paused: dict[Hashable, list[tuple[Route, BufferedCapture]]] = {}
        self.reported: set[str] = set()
        self.open: dict[str, SinkSession] | None = None
        self.writer: SinkWriter | None = None

    def over(self, writer: CaptureWriter, epoch: int, starts: Mapping[str, int]) -> CaptureWriter:
        """A writer for an epoch, which also buffers the captures.

        Args:
            writer: the journal.
            epoch: the epoch.
            starts: steps of every phase in earlier epochs.
        """
        if self.open is None:
            opened = {name: self._opened(name, sink) for name, sink in self.sinks.items()}
            self.open = {name: session for name, session in opened.items() if session is not None}
        self.writer = SinkWriter(self, writer, epoch, dict(starts))
        return self.writer

    def _opened(self, name: str, sink: Sink) -> SinkSession | None:
        with _SinkGuard(self, name):
            files = tuple(self.directory / on_rank(file, self.rank) for file in sink.files())
            tags = {"probes.spec": self.identity, "probes.directory": str(self.directory), **self.facts.tags}
            return sink.open(SinkContext(self.rank, files, self.name, tags, self.facts.closing, self.directory.absolute()))
        return None

    def end_step(self, keep: bool) -> RunError | None:
        """Hand the captures of the committed step to the sinks, or drop them.

        Returns:
            The failure of a sink, once, if the spec says that it ends the run.
        """
        buffered: list[tuple[Route, BufferedCapture]] = []
        if self.writer is not None:
            late = [] if keep else [(route, capture) for route, capture in self.writer.buffered if capture.flags & LATE]
            buffered, self.writer.buffered = self.writer.buffered, late
        if keep and buffered and self.writer is not None:
            if self.evaluator is not None:
                self._evaluate(self.evaluator, self.writer, buffered)
            self._hand_over(self.writer, buffered)
        fresh = [text for name, text in self.failures.items() if name not in self.reported]
        self.reported |= set(self.failures)
        return RunError("; ".join(fresh)) if fresh and self.strict else None

    def pause(self, step: Hashable) -> None:
        """Set the captures of the open step aside while another is committed."""
        if self.writer is not None:
            self.paused[step] = self.writer.buffered
            self.writer.buffered = []

    def resume(self, step: Hashable) -> None:
        """Continue a step that was paused."""
        if self.writer is not None:
            self.writer.buffered = [*self.paused.pop(step, []), *self.writer.buffered]

    def _evaluate(self, evaluator: RuleEvaluator, writer: SinkWriter, buffered: list[tuple[Route, BufferedCapture]]) -> None:
        for route, capture in buffered:
            if route.checked:
                evaluator.evaluate(route.checked, writer.clock(capture), capture.payload, capture.descriptor.dtype)

    def _hand_over(self, writer: SinkWriter, buffered: list[tuple[Route, BufferedCapture]]) -> None:
        made: dict[int, Reading] = {}  # by the index of the capture; all its sinks get the same
        for name, session in list((self.open or {}).items()):
            with _SinkGuard(self, name):
                own = [(at, route, capture) for at, (route, capture) in enumerate(buffered) if name in route.sinks]
                made.update({at: writer.reading(route, capture) for at, route, capture in own if at not in made})
                if own:
                    session.step([made[at] for at, _, _ in own])

    def close(self) -> None:
        """Close the sinks; captures of a step that was not committed are dropped."""
        sessions, self.open, self.writer = self.open or {}, None, None
        for name, session in sessions.items():
            with _SinkGuard(self, name):
                session.close()

    def failed(self, name: str, reason: str) -> None:
        """Disable a sink."""
        if name not in self.failures:
            self.failures[name] = f"sink `{name}` failed and was disabled: {reason}"
            self.say(self.failures[name])
        (self.open or {}).pop(name, None)


class _SinkGuard:
    """Disables a sink that raises."""

    def __init__(self, sessions: SinkSessions, name: str) -> None:
        self.sessions = sessions
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Exception):  # the boundary: a failing sink must not end training
            self.sessions.failed(self.name, error_text(error))
            return True
        return False


class Route(NamedTuple):
    """The destinations of captures of one descriptor.

    Attributes:
        number: their number in the journal; None if they are not recorded.
        sinks: names of the sinks that take them.
        labels: a label for each element.
        checked: the numbers of them that rules check.
    """

    number: int | None
    sinks: tuple[str, ...]
    labels: tuple[str, ...]
    checked: list[EvaluatedNumbers]


class SinkWriter(BufferingWriter):
    """Writes captures to the journal, and buffers those that a sink or a rule takes."""

    def __init__(self, sessions: SinkSessions, journal: CaptureWriter, epoch: int, starts: dict[str, int]) -> None:
        super().__init__()
        self.sessions = sessions
        self.journal = journal
        self.store: Callable[..., None] = journal.add
        self.epoch = epoch
        self.starts = starts
        self.routes: list[Route] = []
        self.buffered: list[tuple[Route, BufferedCapture]] = []

    def descriptor(self, about: Descriptor) -> int:
        """A number for captures of this series, dtype and shape."""
        recorded = about.key.probe in self.sessions.recorded
        number = self.journal.descriptor(about) if recorded else None
        sinks = tuple(self._takers(about.key, about.shape))
        rules = self.sessions.evaluator
        checked = rules.series(about.key, about.dtype, about.shape, lambda: labels(about)) if rules is not None else []
        self.routes.append(Route(number, sinks, labels(about) if sinks else (), checked))
        return super().descriptor(about)

    def _takers(self, key: SeriesKey, shape: tuple[int, ...]) -> Iterator[str]:
        """The sinks that take the captures of a series; a sink whose limit they exceed is disabled."""
        elements = torch.Size(shape).numel()
        for name in self.sessions.takers[key.probe]:
            limit = self.sessions.limits[name]
            if limit is None or elements <= limit:
                yield name
            else:
                hint = "add a transform that makes it smaller, raise the limit of the sink, or name other `sinks` in the probe"
                self.sessions.failed(name, f"`{key}` has {elements} elements, and the sink takes at most {limit}; {hint}")

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""
        route = self.routes[descriptor]
        if route.number is not None:
            self.store(route.number, step, microstep, call, backward, address, nbytes, flags)
        if route.sinks or route.checked:
            self.buffered.append((route, self.copied(descriptor, step, microstep, call, backward, address, nbytes, flags)))

    def clock(self, capture: BufferedCapture) -> Clock:
        """The clock of a capture."""
        about = capture.descriptor
        here = about.epoch is None
        epoch, known = (self.epoch, self.starts.get(about.key.phase, 0) + capture.step) if here else (about.epoch or 0, -1)
        times = (capture.microstep, capture.call, capture.backward)
        return Clock(epoch, about.key.phase, capture.step, known, *times, self.sessions.rank)

    def reading(self, route: Route, capture: BufferedCapture) -> Reading:
        """A capture as Python numbers.

        Raises:
            ValueError: torch does not convert its dtype.
        """
        about = capture.descriptor
        try:
            values = numbers(capture.payload, getattr(torch, about.dtype))
        except RuntimeError as error:
            raise ValueError(f"`{about.key}` has dtype `{about.dtype}`, whose elements cannot be read as numbers: {error}") from None
        return Reading(about.key, self.clock(capture), bool(capture.flags & LATE), dict(zip(route.labels, values, strict=True)))


def labels(about: Descriptor) -> tuple[str, ...]:
    """A label for each element in row-major order: the names along its axes, or indices if there are none."""
    names = about.dims or ("",) * len(about.shape)
    axes = [[str(label) for label in about.coords.get(name, range(size))] for name, size in zip(names, about.shape, strict=True)]
    return tuple("/".join(place) for place in product(*axes))


def numbers(payload: bytes, dtype: torch.dtype) -> list[Number]:
    """The elements of a capture; those that are complex or not finite are strings."""
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
