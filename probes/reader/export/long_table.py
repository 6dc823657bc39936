"""The long form of captures as Arrow tables: one row for each number, with its place in the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.progress.loops import with_progress
from probes.reader.export.batch import Batch
from probes.reader.export.value_column import Numeric, as_column, joint_dtype
from probes.reader.frame import CLOCK, NAMES, Label, whole
from probes.reader.series import Series

ROWS = 1 << 18  # rows of a table in memory: some 30 MB with all columns


@dataclass(frozen=True)
class Axes:
    """The axes of the captures of a series with some number of axes.

    Attributes:
        names: a name for each.
        labelled: the index of the axis whose places are labels; or None.
        labels: these labels.
    """

    names: tuple[str, ...]
    labelled: int | None
    labels: tuple[Label, ...]


class LongTable:
    """The numbers of several series as tables of the same columns.

    Args:
        series: each of one dtype.
        package: pyarrow.

    Raises:
        UsageError: numbers of the series do not fit in one column.
    """

    def __init__(self, series: Sequence[Series], package: Any) -> None:
        self.series = series
        self.package = package
        self.kind: Numeric = joint_dtype(series)
        self.axes = {(index, rank): axes for index, one in enumerate(series) for rank, axes in _axes_of(one)}

    @cached_property
    def index_columns(self) -> dict[str, str]:
        """The column of each axis without labels, by its name."""
        taken = {*NAMES, *CLOCK, "label", "value"}
        found: dict[str, str] = {}
        for axes in self.axes.values():
            for place, name in enumerate(axes.names):
                if place != axes.labelled and name not in found:
                    found[name] = next(free for free in _variants(name) if free not in taken)
                    taken.add(found[name])
        return found

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """The distinct labels; as texts unless all are numbers."""
        found: dict[Label, None] = dict.fromkeys(label for axes in self.axes.values() for label in axes.labels)
        plain = all(not isinstance(label, str) for label in found)
        return tuple(found) if plain else tuple(dict.fromkeys(str(label) for label in found))

    @cached_property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The distinct texts of each column that names a series."""
        return {name: tuple(dict.fromkeys(getattr(one.key, name) for one in self.series)) for name in NAMES}

    @property
    def schema(self) -> Any:
        """The columns."""
        arrow = self.package
        text = arrow.dictionary(arrow.int32(), arrow.string())
        fields = [*((name, text) for name in NAMES), *((name, arrow.int64()) for name in CLOCK)]
        fields += [(column, arrow.int64()) for column in self.index_columns.values()]
        if self.labels:
            fields.append(("label", text if isinstance(self.labels[0], str) else arrow.float64()))
        return arrow.schema([*fields, ("value", arrow.from_numpy_dtype(self.kind))])

    def tables(self) -> Iterator[Any]:
        """One table after the other, of at most `ROWS` rows."""
        schema = self.schema
        for index, one in enumerate(with_progress(self.series, "series")):
            for batch in one.batches(ROWS):
                axes = self.axes[index, batch.shapes.shape[1]]
                values = as_column(batch.values(), self.kind, one)
                for first in range(0, len(values), ROWS):
                    rows = _Elements(batch, first, min(first + ROWS, len(values)))
                    columns = [*self._names(one, len(rows)), *self._clock(rows), *self._places(axes, rows)]
                    yield self.package.table([*columns, values[first : rows.last]], schema=schema)

    def _names(self, series: Series, count: int) -> Iterator[Any]:
        """A text for all rows, for each column that names a series."""
        for name, words in self.words.items():
            codes = np.full(count, words.index(getattr(series.key, name)), np.int32)
            yield self._texts(codes, words)

    def _texts(self, codes: NDArray[np.int32], words: Sequence[str]) -> Any:
        known = self.package.array(words, self.package.string())
        return self.package.DictionaryArray.from_arrays(self.package.array(codes, mask=codes < 0), known)

    def _clock(self, rows: _Elements) -> Iterator[NDArray[np.int64]]:
        for name in CLOCK:
            yield whole(rows.batch.clocks[name])[rows.captures]

    def _places(self, axes: Axes, rows: _Elements) -> Iterator[Any]:
        """The index columns, -1 for axes that the series lacks, and the labels."""
        known = {name: place for place, name in enumerate(axes.names) if place != axes.labelled}
        for name in self.index_columns:
            yield rows.index(known[name]) if name in known else np.full(len(rows), -1)
        if self.labels:
            yield self._labels(axes, rows)

    def _labels(self, axes: Axes, rows: _Elements) -> Any:
        texts = isinstance(self.labels[0], str)
        if axes.labelled is None:
            return self._texts(np.full(len(rows), -1, np.int32), self.labels) if texts else self.package.nulls(len(rows), "float64")  # type: ignore[arg-type]  # all are texts
        index = rows.index(axes.labelled)
        if not texts:
            return np.array(axes.labels, float)[index]
        codes = np.array([self.labels.index(str(label)) for label in axes.labels], np.int32)
        return self._texts(codes[index], self.labels)  # type: ignore[arg-type]  # all are texts


class _Elements:
    """Some elements of a batch, `first` to `last`."""

    def __init__(self, batch: Batch, first: int, last: int) -> None:
        self.batch = batch
        self.last = last
        ends = np.cumsum(batch.sizes)
        starts = ends - batch.sizes
        counts = np.clip(ends, first, last) - np.clip(starts, first, last)
        self.captures: NDArray[np.intp] = np.repeat(np.arange(len(counts)), counts)
        self.within = np.arange(first, last) - starts[self.captures]

    def index(self, axis: int) -> NDArray[np.int64]:
        """The index of each element along an axis of its capture."""
        shapes = self.batch.shapes if len(self.batch.shapes) == 1 else self.batch.shapes[self.captures]
        strides = shapes[:, axis + 1 :].prod(axis=1)
        found: NDArray[np.int64] = self.within // strides % shapes[:, axis]
        return found

    def __len__(self) -> int:
        return len(self.captures)


def _axes_of(series: Series) -> Iterator[tuple[int, Axes]]:
    """The axes of a series for each number of axes that its captures have."""
    coords = series.signature.coords
    for rank in sorted({len(shape) for shape in series.shapes}):
        shapes = [shape for shape in series.shapes if len(shape) == rank]
        dims = series.dims
        names = dims if dims is not None and len(dims) == rank else tuple(f"dim_{axis}" for axis in range(rank))
        labelled = next((axis for axis, name in enumerate(names) if name in coords and fits(shapes, axis, len(coords[name]))), None)
        yield rank, Axes(names, labelled, () if labelled is None else coords[names[labelled]])


def fits(shapes: Sequence[tuple[int, ...]], axis: int, labels: int) -> bool:
    """Whether the number of labels equals the size of an axis in all shapes."""
    return {shape[axis] for shape in shapes} == {labels}


def _variants(name: str) -> Iterator[str]:
    """A name, and the name with a number appended."""
    yield name
    yield from (f"{name}_{number}" for number in range(1, 1 << 16))
