"""The long form of captures: one row for each number, with its place in the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.progress.loops import with_progress
from probes.reader.export.batch import Batch
from probes.reader.export.clock_columns import CLOCK, NAMES, whole
from probes.reader.export.value_column import Numeric, as_column, joint_dtype
from probes.reader.series import Series

ROWS = 1 << 18  # rows of a part in memory: some 30 MB with all columns
Label = str | float


@dataclass(frozen=True)
class TextColumn:
    """A column with few distinct texts.

    Attributes:
        codes: (rows,) index into `words`; -1 for no text.
        words: the texts.
    """

    codes: NDArray[np.int32]
    words: tuple[str, ...]


Column = NDArray[Any] | TextColumn


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
    """The numbers of several series in parts of the same columns.

    Args:
        series: each of one dtype.
        complexes: whether the column of the values may hold complex numbers.

    Raises:
        UsageError: numbers of the series do not fit in one column.
    """

    def __init__(self, series: Sequence[Series], *, complexes: bool = False) -> None:
        self.series = series
        self.kind: Numeric = joint_dtype(series, complexes=complexes)
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

    def parts(self) -> Iterator[dict[str, Column]]:
        """The columns by name, at most `ROWS` rows at a time."""
        for index, one in enumerate(with_progress(self.series, "series")):
            for batch in one.batches(ROWS):
                axes = self.axes[index, batch.shapes.shape[1]]
                values = as_column(batch.values(), self.kind, one)
                for first in range(0, len(values), ROWS):
                    rows = _Elements(batch, first, min(first + ROWS, len(values)))
                    clock = {name: whole(batch.clocks[name])[rows.captures] for name in CLOCK}
                    yield {**self._names(one, len(rows)), **clock, **self._places(axes, rows), "value": values[first : rows.last]}

    def columns(self) -> dict[str, Column]:
        """All rows together."""
        parts = list(self.parts())
        found: dict[str, Column] = {name: TextColumn(_joined(parts, name, np.int32), words) for name, words in self.words.items()}
        found |= {name: _joined(parts, name, np.int64) for name in (*CLOCK, *self.index_columns.values())}
        if self.labels:
            texts = self._text_labels
            found["label"] = TextColumn(_joined(parts, "label", np.int32), texts) if texts else _joined(parts, "label", float)
        return found | {"value": _joined(parts, "value", self.kind)}

    @property
    def _text_labels(self) -> tuple[str, ...]:
        return tuple(label for label in self.labels if isinstance(label, str))

    def _names(self, series: Series, count: int) -> dict[str, TextColumn]:
        """A text for all rows, for each column that names a series."""
        return {
            name: TextColumn(np.full(count, words.index(getattr(series.key, name)), np.int32), words) for name, words in self.words.items()
        }

    def _places(self, axes: Axes, rows: _Elements) -> dict[str, Column]:
        """The index columns, -1 for axes that the series lacks, and the labels."""
        known = {name: place for place, name in enumerate(axes.names) if place != axes.labelled}
        found: dict[str, Column] = {
            column: rows.index(known[name]) if name in known else np.full(len(rows), -1) for name, column in self.index_columns.items()
        }
        return found | {"label": self._labels(axes, rows)} if self.labels else found

    def _labels(self, axes: Axes, rows: _Elements) -> Column:
        """The label of each row; a missing number is NaN."""
        texts, index = self._text_labels, None if axes.labelled is None else rows.index(axes.labelled)
        if not texts:
            return np.full(len(rows), np.nan) if index is None else np.array(axes.labels, float)[index]
        codes = np.array([texts.index(str(label)) for label in axes.labels], np.int32)
        return TextColumn(np.full(len(rows), -1, np.int32) if index is None else codes[index], texts)


def _joined(parts: Sequence[dict[str, Column]], name: str, kind: Any) -> NDArray[Any]:
    """A column of all parts; of texts the codes."""
    found = [part[name] for part in parts]
    return np.concatenate([np.empty(0, kind), *(one.codes if isinstance(one, TextColumn) else one for one in found)])


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
