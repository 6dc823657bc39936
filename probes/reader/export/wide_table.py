"""The wide form of captures as Arrow tables: one row for each place in the run, one column for each number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.errors import UsageError
from probes.progress.loops import with_progress
from probes.reader.export.clock_columns import whole
from probes.reader.export.value_column import Numeric, as_column, joint_dtype
from probes.reader.series import Series

MOST_COLUMNS = 10_000
CELLS = 1 << 20  # limit for a table in memory
ORDER = ("phase", "epoch", "rank", "step", "microstep", "call", "backward", "global_step")
CLOCK = ORDER[1:]


class _ColumnGroup(NamedTuple):
    """The columns of one series.

    Attributes:
        series: the series, of one dtype.
        names: of its columns, one for each element of a capture.
        rows: (captures,) the row of each capture.
    """

    series: Series
    names: tuple[str, ...]
    rows: NDArray[np.intp]


class WideTable:
    """The numbers of several series as tables of the same columns: the clock, then `probe/target:leaf` or `probe/target:leaf/label`.

    Rows are sorted by phase, epoch, rank and step. A number that a series lacks at a place is null.

    Args:
        series: each of one dtype, and all its captures of one shape.
        package: pyarrow.

    Raises:
        UsageError: the captures of a series differ in shape, or there are more than `MOST_COLUMNS` columns.
    """

    def __init__(self, series: Sequence[Series], package: Any) -> None:
        self.package = package
        self._check(series)
        self.phases = tuple(sorted({one.key.phase for one in series}))
        places = [self._places(one) for one in series]
        joined = np.concatenate(places) if places else np.empty((0, len(ORDER)), np.int64)
        self.places, rows = np.unique(joined, axis=0, return_inverse=True)
        cuts = np.cumsum([len(found) for found in places])[:-1]
        blocks = zip(series, np.split(rows.reshape(-1), cuts), strict=False)
        self.blocks = [_ColumnGroup(one, tuple(element_names(one)), found) for one, found in blocks]
        for block in self.blocks:
            if len(np.unique(block.rows)) < len(block.rows):
                raise UsageError(f"`{block.series.word}` has several captures at one place of the clock; export the long form")

    @staticmethod
    def _check(series: Sequence[Series]) -> None:
        for one in series:
            if len(one.shapes) > 1:
                shown = ", ".join(map(str, one.shapes[:3]))
                raise UsageError(f"the captures of `{one.word}` have the shapes {shown}; the wide form takes one shape, the long form any")
        count = sum(prod(one.shapes[0]) for one in series)
        if count > MOST_COLUMNS:
            raise UsageError(
                f"the wide form would have {count:,} columns, more than {MOST_COLUMNS:,}; export the long form, or store `stats`"
            )

    def _places(self, series: Series) -> NDArray[np.int64]:
        """(captures, columns of the clock) in the order of the rows."""
        clocks = series.clocks
        phase = np.full(len(clocks), self.phases.index(series.key.phase))
        return np.stack([phase, *(whole(clocks[name]) for name in CLOCK)], axis=1)

    @cached_property
    def columns(self) -> dict[str, list[_ColumnGroup]]:
        """The series whose numbers go into a column, by its name: several phases or dtypes may share one."""
        found: dict[str, list[_ColumnGroup]] = {}
        for block in self.blocks:
            for name in block.names:
                found.setdefault(name, []).append(block)
        return found

    @cached_property
    def kinds(self) -> dict[str, Numeric]:
        """The dtype of each column."""
        return {name: joint_dtype([block.series for block in blocks]) for name, blocks in self.columns.items()}

    @property
    def schema(self) -> Any:
        """The columns."""
        arrow = self.package
        head = [("phase", arrow.dictionary(arrow.int32(), arrow.string())), *((name, arrow.int64()) for name in CLOCK)]
        return arrow.schema([*head, *((name, arrow.from_numpy_dtype(kind)) for name, kind in self.kinds.items())])

    def tables(self) -> Iterator[Any]:
        """One table after the other, of at most `CELLS` numbers."""
        height = max(CELLS // max(len(self.kinds), 1), 1)
        for first in with_progress(range(0, len(self.places), height), "table"):
            yield self._table(first, min(first + height, len(self.places)))

    def _table(self, first: int, last: int) -> Any:
        arrow, count = self.package, last - first
        numbers = {name: np.zeros(count, kind) for name, kind in self.kinds.items()}
        missing = {name: np.ones(count, bool) for name in self.kinds}
        for block in self.blocks:
            captures = np.flatnonzero((block.rows >= first) & (block.rows < last))
            rows = block.rows[captures] - first
            taken = block.series.take(captures).reshape(len(captures), -1) if len(captures) else np.empty((0, 0))
            for name, column in zip(block.names, taken.T, strict=False):
                numbers[name][rows] = as_column(column, self.kinds[name], block.series)
                missing[name][rows] = False
        phases = arrow.DictionaryArray.from_arrays(self.places[first:last, 0].astype(np.int32), arrow.array(self.phases, arrow.string()))
        clock = [self.places[first:last, 1 + index] for index in range(len(CLOCK))]
        cells = [arrow.array(numbers[name], mask=missing[name]) for name in numbers]
        return arrow.table([phases, *clock, *cells], schema=self.schema)


def element_names(series: Series) -> Iterator[str]:
    """A column for each element of a capture: labels along axes that have some, else indices; the phase is a column of its own."""
    (shape,), coords = series.shapes, series.signature.coords
    dims = series.dims if series.dims is not None and len(series.dims) == len(shape) else ("",) * len(shape)
    word = str(series.key._replace(phase="train"))
    axes = [[str(label) for label in coords.get(name, range(size))] for name, size in zip(dims, shape, strict=True)]
    return ("/".join([word, *place]) for place in product(*axes))
