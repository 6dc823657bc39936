"""Captures as a long table: one row for each number, with its place in the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.errors import MissingExtra, UsageError
from probes.optional_package import import_optional
from probes.reader.series import Series

Package = Literal["pandas", "polars", "pyarrow"]
MOST_ROWS = 5_000_000
NAMES = ("probe", "target", "leaf", "phase")
CLOCK = ("epoch", "step", "global_step", "microstep", "call", "backward", "rank")
UNKNOWN = np.uint64((1 << 64) - 1)
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
class Rows:
    """The rows of one series.

    Attributes:
        series: the series.
        clocks: (rows,) of the clock.
        indices: (rows,) index by axis without labels.
        labels: (rows,) index into the labels of the axis that has some; or None.
        known: these labels.
        values: (rows,) the numbers.
    """

    series: Series
    clocks: NDArray[Any]
    indices: dict[str, NDArray[np.int64]]
    labels: NDArray[np.int64] | None
    known: tuple[Label, ...]
    values: NDArray[Any]


def frame_of(series: Sequence[Series], package: Package | None = None) -> Any:
    """The captures of several series as a table of pandas, polars or pyarrow; see `SeriesSet.frame`."""
    chosen = package or _installed()
    return _MADE[chosen](import_optional(chosen, "frame", "a frame"), columns(series))


def columns(series: Sequence[Series]) -> dict[str, Column]:
    """The columns of the long table, all of one length.

    Raises:
        UsageError: there are more than `MOST_ROWS` rows.
    """
    single = [one for many in series for one in many.by_dtype()]
    count = sum(one.nbytes // bits_dtype(one.dtype).itemsize for one in single)
    if count > MOST_ROWS:
        raise UsageError(
            f"the table would have {count:,} rows, more than {MOST_ROWS:,}; select steps or series, or store `stats` of the values"
        )
    rows = [part for one in single for part in _rows(one)]
    found: dict[str, Column] = {name: _texts([getattr(part.series.key, name) for part in rows], rows) for name in NAMES}
    found |= {name: _joined([whole(part.clocks[name]) for part in rows], np.int64) for name in CLOCK}
    for axis in dict.fromkeys(axis for part in rows for axis in part.indices):
        found[f"{axis}_1" if axis in (*found, "label", "value") else axis] = _joined(
            [part.indices.get(axis, np.full(len(part.values), -1)) for part in rows], np.int64
        )
    if any(part.labels is not None for part in rows):
        found["label"] = _labels(rows)
    return found | {"value": _joined([part.values for part in rows])}


def _rows(series: Series) -> Iterator[Rows]:
    """The rows of a series: all captures together if they have one shape, else capture by capture."""
    shape = series.signature.shape
    if shape is not None and None not in shape:
        yield _of_captures(series, series.clocks, series.numpy())
        return
    for clock, capture in zip(series.clocks[:, None], series, strict=True):
        yield _of_captures(series, clock, capture.value[None])


def _of_captures(series: Series, clocks: NDArray[Any], values: NDArray[Any]) -> Rows:
    """The rows of captures of one shape, (captures, *shape)."""
    shape = values.shape[1:]
    dims, coords = series.signature.dims, series.signature.coords
    names = list(dims) if dims is not None and len(dims) == len(shape) else [f"dim_{axis}" for axis in range(len(shape))]
    places = [np.tile(index.ravel(), len(values)) for index in np.indices(shape)]
    labelled = next((axis for axis, name in enumerate(names) if len(coords.get(name, ())) == shape[axis]), None)
    indices = {name: place for axis, (name, place) in enumerate(zip(names, places, strict=True)) if axis != labelled}
    labels, known = (None, ()) if labelled is None else (places[labelled], coords[names[labelled]])
    return Rows(series, np.repeat(clocks, int(np.prod(shape, dtype=int))), indices, labels, known, values.ravel())


def _texts(words: Sequence[str], rows: Sequence[Rows]) -> TextColumn:
    """A column that has one text for all rows of a part."""
    known = tuple(dict.fromkeys(words))
    codes = np.array([known.index(word) for word in words], np.int32)
    return TextColumn(np.repeat(codes, [len(part.values) for part in rows]), known)


def _labels(rows: Sequence[Rows]) -> Column:
    """The labels: as numbers if all are, else as texts; nothing for parts without labels."""
    if all(not isinstance(label, str) for part in rows for label in part.known):
        return _joined(
            [np.full(len(part.values), np.nan) if part.labels is None else np.array(part.known, float)[part.labels] for part in rows]
        )
    known = tuple(dict.fromkeys(str(label) for part in rows for label in part.known))
    codes = []
    for part in rows:
        own = np.array([known.index(str(label)) for label in part.known], np.int32)
        codes.append(np.full(len(part.values), -1, np.int32) if part.labels is None else own[part.labels])
    return TextColumn(_joined(codes, np.int32), known)


def _joined(parts: Sequence[NDArray[Any]], kind: Any = None) -> NDArray[Any]:
    return np.concatenate(parts) if kind is None and parts else np.concatenate([np.empty(0, kind), *parts]).astype(kind or float)


def whole(column: NDArray[Any]) -> NDArray[np.int64]:
    """A column of the clock as signed numbers; -1 for a step that is not known."""
    return np.where(column == UNKNOWN, -1, column.astype(np.int64)) if column.dtype == np.uint64 else column.astype(np.int64)


def _installed() -> Package:
    for package in get_args(Package):
        if find_spec(package) is not None:
            found: Package = package
            return found
    raise MissingExtra(
        'a frame needs one of the packages `pandas`, `polars` and `pyarrow`; install one with: pip install "torch-probes[frame]"'
    )


def _pandas(package: Any, found: dict[str, Column]) -> Any:
    return package.DataFrame(
        {
            name: package.Categorical.from_codes(one.codes, list(one.words)) if isinstance(one, TextColumn) else one
            for name, one in found.items()
        }
    )


def _polars(package: Any, found: dict[str, Column]) -> Any:
    def column(one: Column) -> Any:
        if not isinstance(one, TextColumn):
            return one
        codes = package.Series(np.where(one.codes < 0, len(one.words), one.codes))
        return package.Series([*one.words, None], dtype=package.String).gather(codes).cast(package.Categorical)

    return package.DataFrame({name: column(one) for name, one in found.items()})


def _pyarrow(package: Any, found: dict[str, Column]) -> Any:
    def column(one: Column) -> Any:
        if not isinstance(one, TextColumn):
            return package.array(one)
        return package.DictionaryArray.from_arrays(package.array(one.codes, mask=one.codes < 0), package.array(one.words, package.string()))

    return package.table({name: column(one) for name, one in found.items()})


_MADE = {"pandas": _pandas, "polars": _polars, "pyarrow": _pyarrow}
