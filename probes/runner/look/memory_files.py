"""Captures that stay in memory: the counterpart of a journal and its file."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import CLOCKS, UNKNOWN_ORDER, SeriesPart, StepColumn, StepIds, Variants
from probes.clock import SeriesKey
from probes.run_directory.ledger import SealedFileInfo
from probes.run_directory.sealer_process import SealFailure
from probes.runner.capture_buffer import BufferedCapture, BufferingWriter


class MemoryJournal(BufferingWriter):
    """Keeps copies of the captures of one epoch.

    Attributes:
        kept: the captures of all steps that were not dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[BufferedCapture] = []
        self.fresh: list[BufferedCapture] = []
        self.paused: dict[Hashable, list[BufferedCapture]] = {}

    @property
    def captures(self) -> int:
        """Captures so far."""
        return len(self.kept) + len(self.fresh)

    @property
    def pending(self) -> bool:
        """Whether the open step has captures."""
        return bool(self.fresh)

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""
        self.fresh.append(self.copied(descriptor, step, microstep, call, backward, address, nbytes, flags))

    def commit(self, phase: str, step: int, global_step: int, annex: Mapping[str, Any] | None = None) -> None:
        """Keep the captures of the open step."""
        self.kept += self.fresh
        self.fresh = []

    def abort(self) -> None:
        """Drop the captures of the open step."""
        self.fresh = []

    def pause(self, step: Hashable) -> None:
        """Set them aside while another step is committed."""
        self.paused[step], self.fresh = self.fresh, []

    def resume(self, step: Hashable) -> None:
        """Continue a step that was paused."""
        self.fresh = [*self.paused.pop(step, []), *self.fresh]


class MemoryFiles:
    """A run without a directory, of one epoch.

    Attributes:
        ended: the journal of the epoch, when it is over.
        closing: what a file would say of its epoch.
    """

    directory = Path()
    manifest: Mapping[str, Any] = MappingProxyType({})
    segment_steps: int | None = None
    sealed: Sequence[SealedFileInfo] = ()
    seal_failures: Sequence[SealFailure] = ()

    def __init__(self) -> None:
        self.journal: MemoryJournal | None = None
        self.ended = MemoryJournal()
        self.closing: dict[str, Any] = {}

    def open(self, epoch: int, starts: dict[str, int], first_step: int) -> MemoryJournal:
        """Begin an epoch."""
        self.journal = MemoryJournal()
        return self.journal

    def is_full(self) -> bool:
        """An epoch in memory is never cut."""
        return False

    def next_segment(self) -> MemoryJournal:
        """Never called."""
        raise AssertionError("BUG: an epoch in memory has no segments")

    def close(self, complete: bool, reason: str, closing: dict[str, Any]) -> None:
        """End the epoch."""
        if self.journal is not None:
            self.ended, self.journal, self.closing = self.journal, None, closing

    def keep_sources(self, content: bytes) -> dict[str, str]:
        """Never called."""
        raise AssertionError("BUG: what stays in memory has no sources next to it")

    def poll(self) -> int:
        """Nothing waits to be sealed."""
        return 0

    def drain(self, timeout: float | None = None) -> None:
        """Nothing is sealed."""

    def let_go(self) -> None:
        """Forget the open journal, which is that of another process."""
        self.journal = None


class MemorySource:
    """The series of a journal in memory.

    Args:
        journal: the journal; its captures are not copied again.
        rank: rank of the process.
    """

    def __init__(self, journal: MemoryJournal, rank: int) -> None:
        grouped: dict[SeriesAddress, list[BufferedCapture]] = {}
        for capture in journal.kept:
            about = capture.descriptor
            grouped.setdefault(SeriesAddress(about.key, about.dtype), []).append(capture)
        self.parts = {address: MemoryPart(address.key, captures, rank) for address, captures in grouped.items()}

    def part(self, name: str, address: SeriesAddress) -> SeriesPart:
        """One series."""
        return self.parts[address]

    def ids(self, name: str, phase: str) -> StepIds | None:
        """A look has no sample ids."""
        return None


class MemoryPart:
    """One series in memory; see `SeriesPart`."""

    def __init__(self, key: SeriesKey, captures: Sequence[BufferedCapture], rank: int) -> None:
        ordered = sorted(captures, key=_times)
        first = ordered[0].descriptor
        self.key = key
        self.dtype = first.dtype
        dims = {capture.descriptor.dims for capture in ordered}
        self.dims = first.dims if len(dims) == 1 else None
        self.coords = first.coords
        self.attrs = first.attrs
        every = list({id(one.descriptor): one.descriptor.attrs for one in ordered}.values())
        numbers = {id(attrs): number for number, attrs in enumerate(every)}
        of = np.array([numbers[id(one.descriptor.attrs)] for one in ordered], np.uint32)
        self.variants = Variants(tuple(every), of) if any(attrs != first.attrs for attrs in every) else None
        self.clocks = np.array([(0, one.step, one.step, one.microstep, one.call, one.backward, rank) for one in ordered], CLOCKS)
        self.steps = StepColumn(self.clocks)
        self.shapes: NDArray[np.int64] = np.array([*_padded([one.descriptor.shape for one in ordered])], np.int64).reshape(len(ordered), -1)
        self.shape = _only({one.descriptor.shape for one in ordered})
        self.orders = np.full(len(ordered), UNKNOWN_ORDER, np.uint32)  # no two looks are compared
        self._payloads = [one.payload for one in ordered]

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat; fresh memory."""
        return np.frombuffer(bytearray().join(self._payloads[first:last]), bits_dtype(self.dtype))


def _times(capture: BufferedCapture) -> tuple[int, ...]:
    return capture.step, capture.microstep, capture.call, capture.backward


def _padded(shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    rank = max(map(len, shapes))
    return ((*shape, *[-1] * (rank - len(shape))) for shape in shapes)


def _only(shapes: set[tuple[int, ...]]) -> tuple[int, ...] | None:
    return next(iter(shapes)) if len(shapes) == 1 else None
