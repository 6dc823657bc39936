"""The series of a capture file in a few numbers each, for its line in the ledger, so that a list of runs opens no file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from probes.clock import SeriesKey

if TYPE_CHECKING:  # NumPy, which takes longer to import than a list of a run takes
    from numpy.typing import NDArray

    from probes.capture_file.grouped import JournalSeries

Shape = tuple[int | None, ...]


class SeriesOutline(NamedTuple):
    """One series of one dtype, of a file or of several.

    Attributes:
        key: name of the series.
        dtype: torch's name of the dtype, without prefix.
        captures: how many there are.
        shape: sizes of a capture; None for a size that differs, and in place of the whole if captures differ in their number of axes.
        dims: names of the axes, or None.
        nbytes: bytes of the captures, uncompressed.
        epochs: numbers of the epochs that the captures are of, ascending.
    """

    key: SeriesKey
    dtype: str
    captures: int
    shape: Shape | None
    dims: tuple[str, ...] | None
    nbytes: int
    epochs: tuple[int, ...]


def outline_of_journal(series: JournalSeries) -> SeriesOutline:
    """The outline of a series that is being sealed."""
    dims = series.dims if series.dims and len(series.dims) == max(map(len, series.shapes)) else None
    epochs = distinct_epochs(series.clocks)
    return SeriesOutline(series.key, series.dtype, series.count, common(series.shapes), dims, int(series.sizes.sum()), epochs)


def joined(outlines: Sequence[SeriesOutline]) -> SeriesOutline:
    """The outline of one series over several files, in their order."""
    first, shapes = outlines[0], [one.shape for one in outlines]
    shape = common([one for one in shapes if one is not None]) if None not in shapes else None
    return first._replace(
        captures=sum(one.captures for one in outlines),
        shape=shape,
        dims=None if shape is None else first.dims,
        nbytes=sum(one.nbytes for one in outlines),
        epochs=tuple(sorted({epoch for one in outlines for epoch in one.epochs})),
    )


def common(shapes: Iterable[Shape]) -> Shape | None:
    """The sizes that shapes share, None for each that differs; None if they differ in their number of axes."""
    found = set(shapes)
    if len({len(shape) for shape in found}) != 1:
        return None
    return tuple(each[0] if len(set(each)) == 1 else None for each in zip(*found, strict=True))


def stated(outlines: Iterable[SeriesOutline], epoch: int) -> list[dict[str, Any]]:
    """The rows of a line of the ledger, by name and dtype.

    Args:
        outlines: of the series of a file.
        epoch: of the file; a series whose captures are all of it states no epochs.
    """
    return [_row(one, epoch) for one in sorted(outlines, key=lambda one: one[:2])]


def _row(one: SeriesOutline, epoch: int) -> dict[str, Any]:
    return {
        **one.key._asdict(),
        "dtype": one.dtype,
        "captures": one.captures,
        "shape": None if one.shape is None else list(one.shape),
        "dims": None if one.dims is None else list(one.dims),
        "bytes": one.nbytes,
        "epochs": None if one.epochs == (epoch,) else list(one.epochs),
    }


def distinct_epochs(clocks: NDArray[Any]) -> tuple[int, ...]:
    """The epochs of captures, ascending.

    Args:
        clocks: (captures,) with a field `epoch`.
    """
    epochs = clocks["epoch"]
    if len(epochs) and (epochs == epochs[0]).all():
        return (int(epochs[0]),)
    return tuple(sorted(set(epochs.tolist())))
