"""The selected captures of one series, over all files with some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype, values
from probes.capture_file.series_part import CLOCKS, SeriesPart, StepColumn, distinct, shape_of, sizes, stored_shape
from probes.clock import Clock, SeriesKey
from probes.errors import RaggedSeries
from probes.printable import html_table, one_line
from probes.reader.lazy_part import LazyPart
from probes.reader.selection import Places

Chosen = tuple[LazyPart, NDArray[np.intp]]  # a part, and the positions of the selected captures in it, ascending


class Capture(NamedTuple):
    """One tensor, read back.

    Attributes:
        value: the tensor as `Series.numpy` gives it; owned by the caller.
        clock: where in the run it was taken.
    """

    value: NDArray[Any]
    clock: Clock

    def __repr__(self) -> str:
        clock = self.clock
        size = f"{self.value.item():.6g}" if self.value.size == 1 else f"{self.value.dtype}{list(self.value.shape)}"
        return f"<Capture {size}: {clock.phase}, epoch {clock.epoch}, step {clock.step}>"

    def _repr_html_(self) -> str:
        rows = [*zip(self.clock._fields, self.clock, strict=True), ("value", one_line(" ".join(str(self.value).split())))]
        return html_table(("Capture", ""), rows)


def positions(wanted: Places | None, steps: StepColumn) -> NDArray[np.intp]:
    """The positions of the steps that a selection means, ascending."""
    if wanted is None:
        return np.arange(len(steps.column))
    return steps.at(wanted) if type(wanted) is int else np.flatnonzero(_among(wanted, steps.column))


class SelectedCaptures:
    """Captures of one series and one dtype, in order: by epoch, then rank, then clock.

    Attributes:
        key: name of the series.
        chosen: positions by part.
    """

    def __init__(self, key: SeriesKey, chosen: Sequence[Chosen]) -> None:
        self.key = key
        self.chosen = chosen

    @property
    def dtype(self) -> str:
        """Torch's name of the dtype; there must be a capture."""
        return self.chosen[0][0].dtype

    @cached_property
    def clocks(self) -> NDArray[Any]:
        """(captures,) of `CLOCKS`."""
        return np.concatenate([np.empty(0, CLOCKS), *(part.clocks[positions] for part, positions in self.chosen)])

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The distinct shapes."""
        found: set[tuple[int, ...]] = set()
        for part, positions in self.chosen:
            found |= {part.shape} if part.shape is not None else {shape_of(row) for row in distinct(part.part().shapes[positions])}
        return sorted(found)

    @property
    def row_sizes(self) -> NDArray[np.int64]:
        """(captures,) size of the first axis; 1 for a scalar."""
        return np.concatenate([np.empty(0, np.int64), *(rows_of(*chosen) for chosen in self.chosen)])

    def leading_sizes(self, axes: int) -> NDArray[np.int64]:
        """(captures,) the number of places in the first axes of each capture."""
        found = (part.part().shapes[positions][:, :axes].prod(axis=1, dtype=np.int64) for part, positions in self.chosen)
        return np.concatenate([np.empty(0, np.int64), *found])

    @property
    def elements(self) -> int:
        """Stored elements of all captures; a complex number is two."""
        if len(self.shapes) == 1:
            return len(self) * prod(stored_shape(self.shapes[0], self.dtype))
        return sum(int(sizes(part.part().shapes[positions], part.dtype).sum()) for part, positions in self.chosen)

    def shared_sizes(self, axis: int) -> tuple[int, ...]:
        """The sizes from `axis` on, common to all captures.

        Raises:
            RaggedSeries: they do not.
        """
        shapes = self.shapes
        rests = {shape[axis:] for shape in shapes}
        if len(rests) > 1:
            shown = ", ".join(map(str, shapes[:3])) + (", ..." if len(shapes) > 3 else "")
            joinable = all(shapes) and len({shape[1:] for shape in shapes}) == 1
            hint = ".rows() joins them along the first axis, " if joinable else ""
            raise RaggedSeries(f"the captures of `{self.key}` have the shapes {shown}; {hint}iteration gives one after the other")
        return rests.pop()

    def stacked_bits(self) -> NDArray[Any]:
        """(captures, *stored shape) the exact bits of captures of one shape."""
        return self.bits().reshape(len(self), *stored_shape(self.shared_sizes(0), self.dtype))

    def rows(self) -> NDArray[Any]:
        """(N, ...) all captures joined along their first axis; a scalar is one row."""
        rest = () if self.shapes == [()] else self.shared_sizes(1)
        return values(self.bits().reshape(int(self.row_sizes.sum()), *stored_shape(rest, self.dtype)), self.dtype)

    def bits(self) -> NDArray[Any]:
        """The exact bits of all captures, flat, one after the other; owned by the caller."""
        ranges = [(part, first, last) for part, positions in self.chosen for first, last in consecutive(positions)]
        if len(ranges) == 1:
            part, first, last = ranges[0]
            return part.part().elements(first, last)
        out = np.empty(self.elements, bits_dtype(self.dtype))
        start = 0
        for part, first, last in ranges:
            taken = part.part().elements(first, last)
            out[start : start + len(taken)] = taken
            start += len(taken)
        return out

    def at(self, indices: NDArray[np.intp]) -> SelectedCaptures:
        """The captures at some indices, ascending and distinct."""
        found: list[Chosen] = []
        start = 0
        for part, positions in self.chosen:
            low, high = np.searchsorted(indices, (start, start + len(positions)))
            if high > low:
                found.append((part, positions[indices[low:high] - start]))
            start += len(positions)
        return SelectedCaptures(self.key, found)

    def __len__(self) -> int:
        return sum(len(positions) for _, positions in self.chosen)

    def __getitem__(self, index: int) -> Capture:
        """The capture at a position, counted from the end if negative."""
        place = index + len(self) if index < 0 else index
        for part, positions in self.chosen:
            if 0 <= place < len(positions):
                return self._capture(part.part(), int(positions[place]))
            place -= len(positions)
        raise IndexError(f"capture {index} of {len(self)}")

    def __iter__(self) -> Iterator[Capture]:
        """One capture after the other; memory is that of one."""
        for lazy, positions in self.chosen:
            part = lazy.part()
            for position in positions.tolist():
                yield self._capture(part, position)

    def _capture(self, part: SeriesPart, position: int) -> Capture:
        shape = part.shape if part.shape is not None else shape_of(part.shapes[position])
        bits = part.elements(position, position + 1).reshape(stored_shape(shape, part.dtype))
        epoch, *rest = part.clocks[position].item()
        return Capture(values(bits, part.dtype), Clock(epoch, self.key.phase, *rest))


def rows_of(part: LazyPart, positions: NDArray[np.intp]) -> NDArray[np.int64]:
    """(captures,) size of the first axis of some captures of a part; 1 for a scalar."""
    shapes = part.part().shapes[positions]
    return shapes[:, 0] if shapes.shape[1] else np.ones(len(positions), np.int64)


def consecutive(positions: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Consecutive positions, each range as its first position and the one after its last."""
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == len(positions):
        yield first, last + 1
        return
    for some in np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1):
        yield int(some[0]), int(some[-1]) + 1


def _among(wanted: Places, found: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the numbers found are wanted."""
    if isinstance(wanted, slice):
        start = wanted.start or 0
        mask: NDArray[np.bool_] = (found >= start) & ((found.astype(np.int64) - start) % (wanted.step or 1) == 0)
        return mask if wanted.stop is None else mask & (found < wanted.stop)
    return np.isin(found, list(wanted)) if isinstance(wanted, frozenset) else np.asarray(found == wanted)
