"""Captures in groups that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import values
from probes.capture_file.series_part import CLOCKS, SeriesPart, sizes, stored_shape
from probes.reader.selected import SelectedCaptures, consecutive

Range = tuple[SeriesPart, int, int]
"""A part, its first capture, and the one after its last."""


@dataclass(frozen=True)
class Batch:
    """Consecutive captures of one series that have the same number of axes.

    Attributes:
        dtype: torch's name of the dtype.
        clocks: (captures,) of `CLOCKS`.
        shapes: (captures, axes) sizes; one row if all captures have one shape.
        bits: the exact bits of all captures, flat; complex numbers are pairs.
    """

    dtype: str
    clocks: NDArray[np.void]
    shapes: NDArray[np.int64]
    bits: NDArray[np.generic]

    def values(self) -> NDArray[np.generic]:
        """(elements,) the values as `Series.numpy` gives them, one capture after another."""
        return values(self.bits.reshape(stored_shape((-1,), self.dtype)), self.dtype)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(captures,) the number of elements of each capture."""
        return np.broadcast_to(self.shapes.prod(axis=1, dtype=np.int64), len(self.clocks))


def batches(captures: SelectedCaptures, elements: int) -> Iterator[Batch]:
    """All captures in order, in groups.

    Args:
        captures: of one series and dtype.
        elements: the largest number of elements of a group; a larger capture is a group by itself.
    """
    group: list[Range] = []
    rank, room = -1, elements
    for part, first, last, axes, size in _pieces(captures, elements):
        if group and (axes != rank or size > room):
            yield _joined(captures.dtype, group, rank)
            group, room = [], elements
        group.append((part, first, last))
        rank, room = axes, room - size
    if group:
        yield _joined(captures.dtype, group, rank)


def _pieces(captures: SelectedCaptures, elements: int) -> Iterator[tuple[SeriesPart, int, int, int, int]]:
    """Ranges of captures with the same number of axes and at most `elements` elements, or of one capture: part, ends, axes, elements."""
    for lazy, positions in captures.chosen:
        part = lazy.part()
        for first, last in consecutive(positions):
            shapes = part.shapes[first:last]
            counts = sizes(shapes, "uint8")
            axes = (shapes >= 0).sum(axis=1)
            start = 0
            for stop in (*(np.flatnonzero(np.diff(axes)) + 1).tolist(), last - first):
                for low, high in _cut(np.cumsum(counts[start:stop]), elements):
                    yield part, first + start + low, first + start + high, int(axes[start]), int(counts[start + low : start + high].sum())
                start = stop


def _cut(ends: NDArray[np.int64], elements: int) -> Iterator[tuple[int, int]]:
    """Divide captures, given the running sum of their elements, into ranges of at most `elements`, or of one capture."""
    low, done = 0, 0
    while low < len(ends):
        high = max(int(np.searchsorted(ends, done + elements, side="right")), low + 1)
        yield low, high
        low, done = high, int(ends[high - 1])


def _joined(dtype: str, group: list[Range], rank: int) -> Batch:
    shapes = np.concatenate([part.shapes[first:last, :rank] for part, first, last in group])
    clocks = np.concatenate([np.empty(0, CLOCKS), *(part.clocks[first:last] for part, first, last in group)])
    bits = np.concatenate([part.elements(first, last) for part, first, last in group])
    return Batch(dtype, clocks, shapes[:1] if len(shapes) and (shapes == shapes[0]).all() else shapes, bits)
