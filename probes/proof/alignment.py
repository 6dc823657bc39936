"""One series of two runs: captures of the same clock side by side, compared as little as their digests allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import SeriesPart, shape_of, sizes
from probes.clock import Clock, SeriesKey
from probes.proof.compare import ToleranceBounds, equal, measure, shown
from probes.proof.difference import Divergence, SeriesDifference
from probes.proof.series_check import block_ends
from probes.run_directory.listing import Directory
from probes.signature import DTYPES

Group = tuple[int, int]  # epoch and rank of a file
WHERE = ["epoch", "step", "microstep", "call", "backward"]
BATCH_BYTES = 1 << 20
RELEASE_BYTES = 64 << 20


class ComparedRun:
    """A run as a mapping from (epoch, rank) and series to where its captures are."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._read = 0

    @cached_property
    def places(self) -> dict[Group, dict[SeriesKey, list[tuple[str, SeriesAddress]]]]:
        """Files and addresses by (epoch, rank) and series."""
        found: dict[Group, dict[SeriesKey, list[tuple[str, SeriesAddress]]]] = {}
        for entry in self._directory.current:
            group = found.setdefault((entry.epoch, entry.rank), {})
            for address in self._directory.addresses(entry.name):
                group.setdefault(address.key, []).append((entry.name, address))
        return found

    @cached_property
    def keys(self) -> set[SeriesKey]:
        """Every series."""
        return {key for group in self.places.values() for key in group}

    def table(self, group: Group, key: SeriesKey | None) -> CaptureTable:
        """The captures of a series in the files of one epoch and rank."""
        places = self.places.get(group, {}).get(key, []) if key is not None else []
        return CaptureTable(self, places)

    def part(self, place: tuple[str, SeriesAddress]) -> SeriesPart:
        """A series of a file."""
        return self._directory.part(*place)

    def has_read(self, places: list[tuple[str, SeriesAddress]], size: int) -> None:
        """Count what was read, and let go of the pages of the files before they add up."""
        self._read += size
        if self._read >= RELEASE_BYTES:
            self._read = 0
            for name in {name for name, _ in places}:
                release = getattr(self._directory.file(name), "release", None)
                if release is not None:
                    release()


class CaptureTable:
    """Captures of one series, over the segments and dtypes that its files have.

    Attributes:
        clocks: (n,) of `part.CLOCKS`.
        where: (n,) number of the part of each capture.
        at: (n,) its position in that part.
    """

    def __init__(self, side: ComparedRun, places: list[tuple[str, SeriesAddress]]) -> None:
        self._side = side
        self._places = places
        self.parts = [side.part(place) for place in places]
        counts = [len(part.clocks) for part in self.parts]
        self.clocks = np.concatenate([part.clocks for part in self.parts]) if self.parts else np.empty(0, [(name, "<i8") for name in WHERE])
        self.where = np.repeat(np.arange(len(counts)), counts)
        self.at = np.concatenate([np.arange(count) for count in counts]) if counts else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.clocks)

    def clock(self, phase: str, row: int) -> Clock:
        """The clock of a capture."""
        values = self.clocks[row].item()
        return Clock(values[0], phase, *values[1:])

    def elements(self, part: int, first: int, last: int) -> NDArray[Any]:
        """Exact bits of consecutive captures of a part."""
        taken = self.parts[part].elements(first, last)
        self._side.has_read(self._places, taken.nbytes)
        return taken


class MatchedRange(NamedTuple):
    """Captures that lie side by side in one part of each side, with equal dtype and shapes."""

    a: int
    b: int
    first_a: int
    first_b: int
    captures: int
    row: int


def align(
    ours: ComparedRun,
    key: SeriesKey | None,
    theirs: ComparedRun,
    other: SeriesKey | None,
    found: SeriesDifference,
    tolerances: Mapping[str, ToleranceBounds],
    by_digest: bool,
) -> None:
    """Compare one series over all epochs and ranks, and note in `found` what there is."""
    for group in sorted({*ours.places, *theirs.places}):
        a, b = ours.table(group, key), theirs.table(group, other)
        if len(a) or len(b):
            _Comparison(a, b, found, tolerances, by_digest).run()


class _Comparison:
    def __init__(
        self, a: CaptureTable, b: CaptureTable, found: SeriesDifference, tolerances: Mapping[str, ToleranceBounds], by_digest: bool
    ) -> None:
        self._a, self._b, self._found = a, b, found
        self._tolerances, self._by_digest = tolerances, by_digest

    def run(self) -> None:
        rows_a, rows_b = self._matched()
        for run in self._runs(rows_a, rows_b):
            self._found.compared += run.captures
            for same, first, count in self._by_blocks(run):
                if same:
                    self._found.by_digest += count
                else:
                    self._read(run, first, count)

    def _matched(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of both sides with the same clock; what only one has is counted."""
        a, b = (_places(table) for table in (self._a, self._b))
        if len(a) == len(b) and np.array_equal(a, b):
            every = np.arange(len(a))
            return every, every
        _, rows_a, rows_b = np.intersect1d(a, b, return_indices=True)
        self._found.missing += len(a) - len(rows_a)
        self._found.extra += len(b) - len(rows_b)
        if self._found.gap is None:
            self._found.gap = self._first_gap(rows_a, rows_b)
        return rows_a, rows_b

    def _first_gap(self, rows_a: NDArray[np.intp], rows_b: NDArray[np.intp]) -> Clock | None:
        gaps = []
        for table, rows in ((self._a, rows_a), (self._b, rows_b)):
            alone = np.setdiff1d(np.arange(len(table)), rows)
            if len(alone):
                gaps.append(table.clock(self._found.key.phase, int(alone[0])))
        return min(gaps, key=lambda clock: (clock.epoch, clock.step, clock.microstep, clock.call), default=None)

    def _runs(self, rows_a: NDArray[np.intp], rows_b: NDArray[np.intp]) -> Iterator[MatchedRange]:
        """Captures that can be compared; those that cannot are counted."""
        a, b = self._a, self._b
        if not len(rows_a):
            return
        stays = (np.diff(a.where[rows_a]) == 0) & (np.diff(b.where[rows_b]) == 0) & (np.diff(rows_a) == 1) & (np.diff(rows_b) == 1)
        for first, last in pairwise([0, *(np.flatnonzero(~stays) + 1).tolist(), len(rows_a)]):
            at, to = int(rows_a[first]), int(rows_b[first])
            run = MatchedRange(int(a.where[at]), int(b.where[to]), int(a.at[at]), int(b.at[to]), last - first, at)
            yield from self._comparable(run)

    def _comparable(self, run: MatchedRange) -> Iterator[MatchedRange]:
        one, other = self._a.parts[run.a], self._b.parts[run.b]
        if one.dtype != other.dtype:
            self._refuse(run.captures, f"{one.dtype} in the first, {other.dtype} in the second")
            return
        shapes_a = one.shapes[run.first_a : run.first_a + run.captures]
        shapes_b = other.shapes[run.first_b : run.first_b + run.captures]
        if shapes_a.shape == shapes_b.shape:
            same = (shapes_a == shapes_b).all(axis=1)
        else:
            same = np.array([shape_of(x) == shape_of(y) for x, y in zip(shapes_a, shapes_b, strict=True)])
        for first, last in pairwise([0, *(np.flatnonzero(np.diff(same)) + 1).tolist(), run.captures]):
            if same[first]:
                yield run._replace(first_a=run.first_a + first, first_b=run.first_b + first, captures=last - first, row=run.row + first)
            else:
                shape, there = shape_of(shapes_a[first]), shape_of(shapes_b[first])
                self._refuse(last - first, f"shape {list(shape)} in the first, {list(there)} in the second")

    def _refuse(self, count: int, reason: str) -> None:
        self._found.incomparable += count
        self._found.reason = self._found.reason or reason

    def _by_blocks(self, run: MatchedRange) -> Iterator[tuple[bool, int, int]]:
        """Whether digests prove captures equal, the first of them and how many; blocks are cut alike only in whole parts."""
        one, other = self._a.parts[run.a], self._b.parts[run.b]
        digests = [getattr(part, "block_digests", None) for part in (one, other)]
        whole = run.captures == len(one.clocks) == len(other.clocks)
        if not (self._by_digest and whole and digests[0] is not None and digests[1] is not None):
            yield False, 0, run.captures
            return
        ends = block_ends(one)
        if not len(ends) == len(digests[0]) == len(digests[1]):
            yield False, 0, run.captures
            return
        same = (digests[0] == digests[1]).all(axis=1)
        for first, last in pairwise([0, *(np.flatnonzero(np.diff(same)) + 1).tolist(), len(ends)]):
            start = ends[first - 1] if first else 0
            yield bool(same[first]), start, ends[last - 1] - start

    def _read(self, run: MatchedRange, first: int, count: int) -> None:
        """Compare captures by their bytes, a batch at a time."""
        part = self._a.parts[run.a]
        lengths = sizes(part.shapes[run.first_a + first : run.first_a + first + count], part.dtype)
        limit = BATCH_BYTES * DTYPES[part.dtype].lanes // DTYPES[part.dtype].itemsize
        done = 0
        while done < count:
            fits = int(np.searchsorted(np.cumsum(lengths[done : done + limit]), limit, "right"))
            self._batch(run, first + done, lengths[done : done + max(fits, 1)])
            done += max(fits, 1)

    def _batch(self, run: MatchedRange, first: int, lengths: NDArray[np.int64]) -> None:
        a = self._a.elements(run.a, run.first_a + first, run.first_a + first + len(lengths))
        b = self._b.elements(run.b, run.first_b + first, run.first_b + first + len(lengths))
        if equal(a, b):
            return
        start = 0
        for index, length in enumerate(lengths.tolist()):
            x, y = a[start : start + length], b[start : start + length]
            if not equal(x, y):
                self._different(run, first + index, x, y)
            start += length

    def _different(self, run: MatchedRange, index: int, a: NDArray[Any], b: NDArray[Any]) -> None:
        part, found = self._a.parts[run.a], self._found
        tolerance = self._tolerances.get(part.dtype, self._tolerances.get("*"))
        measured = measure(a, b, part.dtype, tolerance)
        found.max_abs, found.max_rel = max(found.max_abs, measured.max_abs), max(found.max_rel, measured.max_rel)
        found.max_ulp = max(found.max_ulp, measured.max_ulp or 0)
        if measured.first is None:
            found.within += 1
            return
        found.different += 1
        clock = self._a.clock(found.key.phase, run.row + index)
        if found.first is not None and _time(found.first.clock) <= _time(clock):
            return
        shape = shape_of(part.shapes[run.first_a + index])
        at = measured.first
        (value_a, bits_a), (value_b, bits_b) = shown(a, at, part.dtype), shown(b, at, part.dtype)
        found.first = Divergence(
            key=found.key,
            clock=clock,
            dtype=part.dtype,
            shape=shape,
            index=tuple(int(axis) for axis in np.unravel_index(at // DTYPES[part.dtype].lanes, shape)) if shape else (),
            a=value_a,
            b=value_b,
            bits_a=bits_a,
            bits_b=bits_b,
            ulp=measure(a[at : at + 1], b[at : at + 1], part.dtype, None).max_ulp if DTYPES[part.dtype].lanes == 1 else None,
            elements=measured.beyond,
            max_abs=measured.max_abs,
            max_rel=measured.max_rel,
            max_ulp=measured.max_ulp,
            cosine=measured.cosine,
        )


def _places(table: CaptureTable) -> NDArray[Any]:
    return np.ascontiguousarray(table.clocks[WHERE].astype([(name, "<i8") for name in WHERE]))


def _time(clock: Clock) -> tuple[int, ...]:
    return clock.epoch, clock.step, clock.microstep, clock.call, clock.backward, clock.rank
