"""Several series of a run together: as a long table, or a row of figures for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from probes.errors import SeriesNotFound
from probes.printable import html_table
from probes.reader.export.arrow_file import record_batches
from probes.reader.export.file import export
from probes.reader.frame import Package, frame_of
from probes.reader.plot.layers_plot import plot_layers
from probes.reader.plot.series_plot import plot_series
from probes.reader.selection import Names, Numbers, Selection
from probes.reader.series import Series

SHOWN = 100  # limit of series that a notebook lists
COLUMNS = ("series", "captures", "dtype", "shape", "bytes", "epochs")


class SeriesList(list[Series]):
    """A list of series that is short to print."""

    def __repr__(self) -> str:
        return _brief("series", self)

    def _repr_html_(self) -> str:
        return listed_html(self)


def listed_html(series: Sequence[Series], caption: str = "") -> str:
    """A table of series for a notebook; of very many only the first ones.

    Args:
        series: the series.
        caption: a line above the table; by default their number.
    """
    more = f"; the first {SHOWN} are listed" if len(series) > SHOWN else ""
    return html_table(COLUMNS, [one.row() for one in series[:SHOWN]], (caption or f"{len(series)} series") + more)


def _brief(name: str, series: Sequence[Series]) -> str:
    names = ", ".join(one.word for one in series[:3])
    return f"<{len(series)} {name}: {names}{', ...' if len(series) > 3 else ''}>" if series else f"<no {name}>"


class SeriesSet(Sequence[Series]):
    """The series that a pattern matches, sorted by name. Nothing is read before it is requested.

    Args:
        series: the series.
        about: what is written in addition to the captures into a file of another tool: the run, and its captures roots.
        lacking: the series that a selection left out, if it left none.
    """

    def __init__(self, series: Sequence[Series], about: Mapping[str, str] | None = None, lacking: Sequence[Series] = ()) -> None:
        self._series = tuple(series)
        self._about = about or {}
        self._lacking = lacking

    def sel(self, *, epoch: Numbers = None, step: Numbers = None, rank: Numbers = None, dtype: Names = None) -> SeriesSet:
        """The same series at some places of the clock, without series that have no capture there; see `Series.sel`."""
        asked = Selection().narrowed(epoch=epoch, step=step, rank=rank, dtype=dtype)  # once, since an iterator is read once
        narrowed = [one.sel(epoch=asked.epoch, step=asked.step, rank=asked.rank, dtype=asked.dtype) for one in self._series]
        found = [one for one in narrowed if len(one)]
        return SeriesSet(found, self._about, lacking=() if found else narrowed)

    def by_dtype(self) -> list[Series]:
        """The series that have captures, one for each dtype; none if the set was made without series.

        Raises:
            SeriesNotFound: no series has a capture in the selection.
        """
        found = [one for many in self._series for one in many.by_dtype()]
        meant = self._series or self._lacking
        if meant and not found:
            of = f"`{meant[0].key}`" if len(meant) == 1 else f"none of {len(meant)} series, such as `{meant[0].key}`,"
            raise SeriesNotFound(f"{of} has {'no' if len(meant) == 1 else 'a'} capture in this selection; {meant[0].extent}")
        return found

    def frame(self, package: Package | None = None) -> Any:
        """All captures as a long table, one row for each number.

        Args:
            package: `pandas`, `polars` or `pyarrow`; by default the first of them that is installed.

        Returns:
            A data frame, or an Arrow table, with the columns `probe`, `target`, `leaf`, `phase`, `epoch`, `step`, `global_step`,
            `microstep`, `call`, `backward`, `rank`, one index for each axis without labels, `label` if an axis has some, and `value`.
            An index is -1 if a series has no such axis, `global_step` is -1 if it is not known.

        Raises:
            SeriesNotFound: no series has a capture in the selection.
            MissingExtra: none of the packages is installed.
            UsageError: the table would have more than `MOST_ROWS` rows.
        """
        return frame_of(self.by_dtype(), package)

    def export(self, path: str | Path, *, format: str | None = None, wide: bool = False) -> None:  # noqa: A002  # as in the command
        """Write all captures to a file of another tool, a group of captures at a time.

        Args:
            path: the file, or the folder of `zarr`, which is replaced when it is complete.
            format: `parquet`, `arrow`, `npz`, `safetensors`, `zarr` or `jsonl`; by default that of the suffix.
            wide: of `parquet` and `arrow`: one row for each place of the clock, one column for each number, instead of one row for
                each number.

        Raises:
            SeriesNotFound: no series has a capture in the selection; no file is written.
            MissingExtra: the format needs a package that is not installed.
            UsageError: the format is not known, or cannot hold the captures; the message says which can.
        """
        export(path, self.by_dtype(), kind=format, wide=wide, about=self._about)

    def plot(self, ax: Any = None, label: str | None = None) -> Any:
        """Draw one number of each series over `global_step`, as a heat map of layers over steps; of a single series, see `Series.plot`.

        Args:
            ax: axes of matplotlib; by default those of a new figure.
            label: which number of a capture, such as `std` of `stats`; by default `mean`, or of captures without labels the mean.

        Returns:
            The axes.

        Raises:
            SeriesNotFound: no series has a capture in the selection.
            MissingExtra: matplotlib is not installed.
            UsageError: a series has no such label.
        """
        single = self.by_dtype()
        if not single:
            raise SeriesNotFound("there is no series to draw")
        return plot_series(single[0], ax) if len(single) == 1 and label is None else plot_layers(single, ax, label)

    def arrow(self, *, wide: bool = False) -> Any:
        """All captures as a `pyarrow.RecordBatchReader`, which reads them on demand: for pandas, polars, DuckDB and others.

        Args:
            wide: see `export`.

        Raises:
            SeriesNotFound: no series has a capture in the selection.
            MissingExtra: pyarrow is not installed.
            UsageError: the captures do not fit in a table of this form.
        """
        return record_batches(self.by_dtype(), wide=wide, about=self._about)

    @overload
    def __getitem__(self, index: int) -> Series: ...
    @overload
    def __getitem__(self, index: slice) -> SeriesSet: ...
    def __getitem__(self, index: int | slice) -> Series | SeriesSet:
        """The series at a position, or those of a range of positions."""
        return SeriesSet(self._series[index], self._about) if isinstance(index, slice) else self._series[index]

    def __iter__(self) -> Iterator[Series]:
        """One series after the other."""
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        names = ", ".join(one.word for one in self._series[:3])
        return f"<SeriesSet of {len(self)}: {names}{', ...' if len(self) > 3 else ''}>"

    def _repr_html_(self) -> str:
        return listed_html(self._series)
