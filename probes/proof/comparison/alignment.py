"""One series of two runs: captures with the same clock are paired, and their bytes (on request their digests) compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import values
from probes.capture_file.series_part import shape_of, sizes
from probes.clock import Clock, SeriesKey
from probes.proof.comparison.compare import Measure, ToleranceBounds, equal, measure, shown
from probes.proof.comparison.compared_run import CaptureRange, CaptureTable, ComparedRun
from probes.proof.comparison.difference import Divergence, SeriesDifference
from probes.proof.series_check import block_ends
from probes.reader.loss_scales import divided
from probes.signature import DTYPES

BATCH_BYTES = 1 << 20
WIDER = {"float16": "float32", "bfloat16": "float32"}  # the dtype for comparing unscaled gradients


class PairedRange(NamedTuple):
    """Consecutive captures of the first run, and those of the second with the same clocks.

    Attributes:
        a: captures of the first run.
        b: as many captures of the second.
    """

    a: CaptureRange
    b: CaptureRange

    def narrowed(self, start: int, count: int) -> PairedRange:
        """A part of this range."""
        return PairedRange(self.a.narrowed(start, count), self.b.narrowed(start, count))


def align(
    ours: ComparedRun,
    key: SeriesKey | None,
    theirs: ComparedRun,
    other: SeriesKey | None,
    found: SeriesDifference,
    tolerances: Mapping[str, ToleranceBounds],
    by_digest: bool,
) -> None:
    """Compare one series over all epochs and ranks, and record the differences in `found`."""
    for group in sorted({*ours.places, *theirs.places}):
        a, b = ours.table(group, key), theirs.table(group, other)
        if len(a) or len(b):
            _Comparison(found, tolerances, by_digest).run(a, b)


class _Comparison:
    def __init__(self, found: SeriesDifference, tolerances: Mapping[str, ToleranceBounds], by_digest: bool) -> None:
        self._found, self._tolerances, self._by_digest = found, tolerances, by_digest

    def run(self, a: CaptureTable, b: CaptureTable) -> None:
        rows_a, rows_b = self._matched(a, b)
        for paired in _consecutive(a, rows_a, b, rows_b):
            for comparable in self._comparable(paired):
                self._found.compared += comparable.a.count
                if not np.array_equal(comparable.a.scales, comparable.b.scales):
                    self._read(comparable)
                    continue
                for digests_agree, part in self._by_blocks(comparable):
                    if digests_agree:
                        self._with_equal_digests(part)
                    else:
                        self._read(part)

    def _with_equal_digests(self, paired: PairedRange) -> None:
        """Compare captures by their recorded digests on request; else read them, and count digests that are wrong."""
        found = self._found
        if self._by_digest:
            found.by_digest += paired.a.count
            return
        before = found.different + found.within
        self._read(paired)
        found.contradicting += found.different + found.within - before

    def _matched(self, a: CaptureTable, b: CaptureTable) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of both tables with the same clock; rows of only one table are counted."""
        found, ours, theirs = self._found, a.identities(), b.identities()
        if np.array_equal(ours, theirs):
            every = np.arange(len(a))
            return every, every
        _, rows_a, rows_b = np.intersect1d(ours, theirs, return_indices=True)
        found.missing += len(a) - len(rows_a)
        found.extra += len(b) - len(rows_b)
        alone = [clock for table, rows in ((a, rows_a), (b, rows_b)) if (clock := _first_alone(table, rows, found.key.phase))]
        found.gap = found.gap or min(alone, key=_time, default=None)
        return rows_a, rows_b

    def _comparable(self, paired: PairedRange) -> Iterator[PairedRange]:
        """Ranges of equal dtype and shapes; captures that cannot be compared are counted."""
        a, b = paired
        if a.part.dtype != b.part.dtype:
            self._refuse(a.count, f"`{a.part.dtype}` in the first, `{b.part.dtype}` in the second")
            return
        if a.shapes.shape == b.shapes.shape:
            same = (a.shapes == b.shapes).all(axis=1)
        else:
            same = np.array([shape_of(x) == shape_of(y) for x, y in zip(a.shapes, b.shapes, strict=True)])
        for first, last in _equal_ranges(same):
            if same[first]:
                yield paired.narrowed(first, last - first)
            else:
                ours, theirs = list(shape_of(a.shapes[first])), list(shape_of(b.shapes[first]))
                self._refuse(last - first, f"shape {ours} in the first, {theirs} in the second")

    def _refuse(self, count: int, reason: str) -> None:
        self._found.incomparable += count
        self._found.reason = self._found.reason or reason

    def _by_blocks(self, paired: PairedRange) -> Iterator[tuple[bool, PairedRange]]:
        """The range in pieces, each with whether its recorded digests agree; only whole parts are cut into the same blocks."""
        a, b = (getattr(side.part, "block_digests", None) for side in paired)  # a journal has no digests
        whole = paired.a.is_whole_part and paired.b.is_whole_part
        if not whole or a is None or b is None:
            yield False, paired
            return
        ends = block_ends(paired.a.part)
        if not len(ends) == len(a) == len(b):
            yield False, paired
            return
        same = (a == b).all(axis=1)
        for first, last in _equal_ranges(same):
            start = ends[first - 1] if first else 0
            yield bool(same[first]), paired.narrowed(start, ends[last - 1] - start)

    def _read(self, paired: PairedRange) -> None:
        """Compare captures by their bytes, a batch at a time."""
        part = paired.a.part
        lengths = sizes(paired.a.shapes, part.dtype)
        limit = BATCH_BYTES * DTYPES[part.dtype].lanes // DTYPES[part.dtype].itemsize
        done = 0
        while done < paired.a.count:
            fits = max(int(np.searchsorted(np.cumsum(lengths[done : done + limit]), limit, "right")), 1)
            self._batch(paired.narrowed(done, len(lengths[done : done + fits])), lengths[done : done + fits])
            done += fits

    def _batch(self, paired: PairedRange, lengths: NDArray[np.int64]) -> None:
        a, b = paired.a.bits(), paired.b.bits()
        apart = paired.a.scales != paired.b.scales
        if not apart.any() and equal(a, b):
            return
        start = 0
        for index, length in enumerate(lengths.tolist()):
            ours, theirs, dtype = a[start : start + length], b[start : start + length], paired.a.part.dtype
            if apart[index]:
                self._found.unscaled += 1
                ours, theirs = _unscaled(ours, dtype, paired.a.scales[index]), _unscaled(theirs, dtype, paired.b.scales[index])
                dtype = WIDER.get(dtype, dtype)
            if not equal(ours, theirs):
                self._different(paired.a.narrowed(index, 1), dtype, ours, theirs)
            start += length

    def _different(self, capture: CaptureRange, dtype: str, a: NDArray[Any], b: NDArray[Any]) -> None:
        """Count one capture whose bits differ; the first one beyond the tolerance is recorded in full."""
        found = self._found
        measured = measure(a, b, dtype, self._tolerances.get(dtype, self._tolerances.get("*")))
        found.max_abs, found.max_rel = max(found.max_abs, measured.max_abs), max(found.max_rel, measured.max_rel)
        found.max_ulp = max(found.max_ulp, measured.max_ulp or 0)
        if measured.first is None:
            found.within += 1
            return
        found.different += 1
        clock, order = capture.clock(found.key.phase), capture.order
        if found.first is None or _time(clock, order) < _time(found.first.clock, found.first.order):
            found.first = _divergence(found.key, clock, order, shape_of(capture.shapes[0]), dtype, (a, b), measured, measured.first)


def _unscaled(bits: NDArray[Any], dtype: str, scale: float) -> NDArray[Any]:
    """Gradients without their loss scale, from the exact bits of one capture."""
    numbers = bits if DTYPES[dtype].lanes > 1 else values(bits, dtype)
    found: NDArray[Any] = divided(numbers[None], np.array([scale]))[0]
    return found


def _divergence(
    key: SeriesKey,
    clock: Clock,
    order: int,
    shape: tuple[int, ...],
    dtype: str,
    captures: tuple[NDArray[Any], NDArray[Any]],
    measured: Measure,
    at: int,
) -> Divergence:
    """Two captures that differ, with the element at a flat position."""
    lanes = DTYPES[dtype].lanes
    (value_a, bits_a), (value_b, bits_b) = (shown(bits, at, dtype) for bits in captures)
    a, b = (bits[at : at + 1] for bits in captures)
    return Divergence(
        key=key,
        clock=clock,
        order=order,
        dtype=dtype,
        shape=shape,
        index=tuple(int(axis) for axis in np.unravel_index(at // lanes, shape)) if shape else (),
        a=value_a,
        b=value_b,
        bits_a=bits_a,
        bits_b=bits_b,
        ulp=measure(a, b, dtype, None).max_ulp if lanes == 1 else None,
        elements=measured.beyond,
        max_abs=measured.max_abs,
        max_rel=measured.max_rel,
        max_ulp=measured.max_ulp,
        cosine=measured.cosine,
    )


def _consecutive(a: CaptureTable, rows_a: NDArray[np.intp], b: CaptureTable, rows_b: NDArray[np.intp]) -> Iterator[PairedRange]:
    """Matched rows as ranges that are consecutive in one part of either table."""
    if not len(rows_a):
        return
    goes_on = np.ones(len(rows_a) - 1, bool)
    for table, rows in ((a, rows_a), (b, rows_b)):
        goes_on &= (np.diff(table.part_numbers[rows]) == 0) & (np.diff(rows) == 1)
    for first, last in pairwise([0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(rows_a)]):
        yield PairedRange(a.range(int(rows_a[first]), last - first), b.range(int(rows_b[first]), last - first))


def _equal_ranges(same: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Ranges of equal answers, each as its first index and the one after its last."""
    yield from pairwise([0, *(np.flatnonzero(np.diff(same)) + 1).tolist(), len(same)])


def _first_alone(table: CaptureTable, matched: NDArray[np.intp], phase: str) -> Clock | None:
    """The clock of the first capture that the other table lacks."""
    alone = np.setdiff1d(np.arange(len(table)), matched)
    return table.clock(phase, int(alone[0])) if len(alone) else None


def _time(clock: Clock, order: int = 0) -> tuple[int, ...]:
    """The sort key of captures of one series: within a step the order of execution, if a file has it."""
    return clock.epoch, clock.step, order, clock.microstep, clock.call, clock.backward, clock.rank
