"""The captures of one series in one file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.outline import SeriesOutline, common, distinct_epochs
from probes.clock import SeriesKey
from probes.signature import DTYPES, Coord

CLOCKS = np.dtype(
    [
        ("epoch", "<u4"),
        ("step", "<u4"),
        ("global_step", "<u8"),
        ("microstep", "<i4"),
        ("call", "<u4"),
        ("backward", "<u4"),
        ("rank", "<u4"),
    ]
)


UNKNOWN_ORDER = (1 << 32) - 1


class Variants(NamedTuple):
    """Attributes that not all captures of a series share.

    Attributes:
        attrs: the different combinations.
        of: (captures,) which of them each capture has.
    """

    attrs: tuple[dict[str, Any], ...]
    of: NDArray[np.uint32]


class SeriesPart(Protocol):
    """One series in one file.

    Attributes:
        key: name of the series.
        dtype: torch's name of the dtype, without prefix.
        dims: names of the axes of a capture, or None.
        coords: labels of an axis by its name.
        attrs: everything else the file says of the series; what not all captures share is in `variants`.
        clocks: (captures,) of `CLOCKS`, in the order of the file.
        steps: their steps.
        shapes: (captures, rank) sizes; -1 fills up a capture of lower rank.
        shape: the one shape of all captures, if the file says so at once; else None.
    """

    key: SeriesKey
    dtype: str
    dims: tuple[str, ...] | None
    coords: dict[str, Coord]
    attrs: dict[str, Any]
    clocks: NDArray[Any]
    steps: StepColumn
    shapes: NDArray[np.int64]
    shape: tuple[int, ...] | None

    @property
    def orders(self) -> NDArray[np.uint32]:
        """(captures,) how many captures of the same epoch, phase and step were taken before; `UNKNOWN_ORDER` if that is not known."""

    @property
    def variants(self) -> Variants | None:
        """The attributes that not all captures share, such as how a tensor is sharded; None if all share all."""

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat, one after the other.

        Complex numbers are pairs. The memory is fresh, owned by the caller.
        """


class StepColumn:
    """The column of steps of a part, separate from the other clocks, so that one step is found without reading all of them.

    Attributes:
        column: (captures,) the steps.
        ascending: whether they never go down.
    """

    def __init__(self, clocks: NDArray[Any]) -> None:
        self.column: NDArray[np.uint32] = np.ascontiguousarray(clocks["step"])
        self.ascending = bool((self.column[1:] >= self.column[:-1]).all())

    def at(self, step: int) -> NDArray[np.intp]:
        """The positions of one step."""
        if not self.ascending:
            return np.flatnonzero(self.column == step)
        steps = self.column.data  # a few plain integers of it are enough for `bisect`
        return np.arange(bisect_left(steps, step), bisect_right(steps, step))


class StepIds(NamedTuple):
    """The samples that the steps of a phase saw.

    Attributes:
        steps: (n,) the steps.
        sizes: (n,) how many samples each saw.
        ids: (sum of sizes,) their ids.
    """

    steps: NDArray[Any]
    sizes: NDArray[Any]
    ids: NDArray[Any]


def by_variant(part: SeriesPart) -> Iterator[tuple[dict[str, Any], NDArray[np.intp]]]:
    """All attributes of captures, and the positions of the captures with these attributes."""
    variants = part.variants
    if variants is None:
        yield part.attrs, np.arange(len(part.clocks))
        return
    for number, attrs in enumerate(variants.attrs):
        yield {**part.attrs, **attrs}, np.flatnonzero(variants.of == number)


def attrs_of(part: SeriesPart, index: int) -> dict[str, Any]:
    """All attributes of the capture at a position."""
    variants = part.variants
    return part.attrs if variants is None else {**part.attrs, **variants.attrs[variants.of[index]]}


def outline_of_part(part: SeriesPart) -> SeriesOutline:
    """The outline of a series of a file, as its clocks and shapes give it."""
    shapes = [part.shape] if part.shape is not None else [shape_of(row) for row in distinct(part.shapes)]
    itemsize = DTYPES[part.dtype].itemsize // DTYPES[part.dtype].lanes
    nbytes = int(sizes(part.shapes, part.dtype).sum()) * itemsize
    return SeriesOutline(part.key, part.dtype, len(part.clocks), common(shapes), part.dims, nbytes, distinct_epochs(part.clocks))


def sizes(shapes: NDArray[np.int64], dtype: str) -> NDArray[np.int64]:
    """Stored elements of each capture; a complex number is two.

    Args:
        shapes: as in `SeriesPart`.
        dtype: torch's name.
    """
    elements: NDArray[np.int64] = np.where(shapes < 0, 1, shapes).prod(axis=1, dtype=np.int64)
    return elements * DTYPES[dtype].lanes


def distinct(shapes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct rows of `SeriesPart.shapes`; fast if all are equal, which is the usual case."""
    if len(shapes) and (shapes == shapes[0]).all():
        return shapes[:1]
    return np.unique(shapes, axis=0)


def uniform(shapes: NDArray[np.int64]) -> tuple[int, ...] | None:
    """The shape of all captures if `SeriesPart.shapes` is one row, stored once for all of them; else None."""
    return shape_of(shapes[0]) if len(shapes) == 1 or (len(shapes) and not shapes.strides[0]) else None


def shape_of(row: NDArray[np.int64]) -> tuple[int, ...]:
    """The shape in one row of `SeriesPart.shapes`."""
    return tuple(int(size) for size in row if size >= 0)


def stored_shape(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """The shape of the bits of a value: a complex number adds a last axis of 2."""
    return (*shape, DTYPES[dtype].lanes) if DTYPES[dtype].lanes > 1 else shape
