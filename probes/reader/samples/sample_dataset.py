"""Rows of captures as a map-style dataset: one item for each sample, with its id and its row of every series."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index as as_index
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from probes.digest import blake3_hex
from probes.errors import RaggedSeries, SeriesNotFound, StorageError, UsageError
from probes.printable import html_lines
from probes.reader.sample_ids import among
from probes.reader.samples.capture_stream import CaptureStream
from probes.reader.samples.tables import huggingface_table, record_batches_of
from probes.reader.selection import Samples, sample_ids
from probes.reader.series import Series

Item = dict[str, Any]
CACHED = 64 << 20  # limit of bytes of cached captures
PLACE = ["epoch", "step", "microstep", "call", "backward", "rank"]


class SampledRun(Protocol):
    """A run whose captures are samples."""

    @property
    def path(self) -> Path:
        """Its directory."""

    def opened_again(self) -> Self:
        """The same selection of the run, with files of its own."""

    def find(self, word: str) -> Series:
        """A series by its name."""

    def match(self, word: str) -> Iterable[Series]:
        """The series that a pattern matches."""


class SampleDataset(Sequence[Item]):
    """The rows of one series or several, taken in the same calls, as items for a `torch.utils.data.DataLoader`.

    An item has `id` (if the run has recorded sample ids), `epoch`, `step`, `row` (its index in the capture), the row of each series
    by the name of the series, and `label` if labels were given. Rows are numpy arrays, owned by the caller; a `DataLoader` makes tensors
    of them.

    Workers of a `DataLoader` open the files again, whether they are forked or spawned.

    Args:
        run: the run, or a selection of it.
        series: the series, in the order of the items.
        axes: how many leading axes of a capture count samples: 1 for (sample, ...), 2 for (sample, token, ...), each token an item.
        labels: label by sample id.
        keep: indices of the rows that are left; None for all.

    Attributes:
        names: names of the series, which are keys of the items.

    Raises:
        RaggedSeries: the series were not captured in the same calls, or differ in their number of rows.
        SeriesNotFound: there are labels, and the run recorded no sample ids.
        UsageError: a sample has no label.
    """

    def __init__(
        self,
        run: SampledRun,
        series: Sequence[Series],
        axes: int = 1,
        labels: Mapping[Any, Any] | None = None,
        keep: NDArray[np.int64] | None = None,
    ) -> None:
        self.names = [one.word for one in series]
        self._run = run
        self._axes = axes
        self._labels = labels
        self._series: list[Series] | None = list(series)
        self._process = os.getpid()
        self._cache: OrderedDict[int, list[NDArray[Any]]] = OrderedDict()
        self._sizes = _same_rows(series, axes)
        self._ends = np.cumsum(self._sizes)
        self._clocks = series[0].clocks[PLACE]
        self._ids = _ids(series[0], self._sizes)
        self._keep = keep
        if labels is not None:
            self._check_labels(labels)

    @property
    def ids(self) -> NDArray[Any]:
        """(N,) the sample id of each item.

        Raises:
            SeriesNotFound: the run recorded none.
        """
        if self._ids is None:
            raise SeriesNotFound(f'"{self._run.path}" holds no sample ids; record them with run.steps(loader, ids=...)')
        return self._ids if self._keep is None else self._ids[self._keep]

    def find(self, id: Samples) -> NDArray[np.intp]:  # noqa: A002  # as in `Series.sel(id=...)`
        """The indices of the items of a sample, or of several."""
        return np.flatnonzero(among(self.ids, sample_ids("id", id)))

    def split(self, test: float, seed: int = 0) -> tuple[SampleDataset, SampleDataset]:
        """Split the items into two datasets, for training and for testing, that share no sample.

        A sample is in the second one by the hash of its id and of the seed, so it stays there however many captures follow.

        Args:
            test: share of the samples in the second dataset, between 0 and 1.
            seed: another one gives another split.

        Raises:
            SeriesNotFound: the run recorded no sample ids.
            UsageError: `test` is not between 0 and 1.
        """
        if not 0 < test < 1:
            raise UsageError(f"`test` is the share of the samples in the second dataset, between 0 and 1, not {test}")
        distinct, where = np.unique(self.ids.astype(str), return_inverse=True)
        drawn = np.array([int(blake3_hex(f"{seed}/{one}".encode())[:16], 16) / 2**64 for one in distinct])
        held = (drawn < test)[where.reshape(-1)]
        return self._kept(np.flatnonzero(~held)), self._kept(np.flatnonzero(held))

    def stream(self, shuffle: int | None = None, buffer: int = 16) -> Any:
        """The same items as a `torch.utils.data.IterableDataset`, which reads captures one after the other and divides them among workers.

        Args:
            shuffle: a seed: captures come in an order drawn from it, and rows in an order drawn among `buffer` captures at a time.
                `set_epoch(n)` gives another order. None for the order of the run.
            buffer: how many captures are in memory while their rows are shuffled.

        Raises:
            MissingExtra: torch is not installed.
        """
        return CaptureStream(self, shuffle, buffer).torch()

    def arrow(self) -> Any:
        """All items as a `pyarrow.RecordBatchReader`, read on demand; a row is a fixed-size list, flat, with its shape in the metadata.

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        return record_batches_of(self)

    def huggingface(self, *, streaming: bool = False) -> Any:
        """All items as a `datasets.Dataset`, or with `streaming` as a `datasets.IterableDataset` that keeps nothing on disk.

        Raises:
            MissingExtra: the package `datasets` is not installed; `arrow` gives a table without it.
        """
        return huggingface_table(self, streaming=streaming)

    def groups(self, places: Sequence[int]) -> Iterator[list[Item]]:
        """The items of some captures, a list for each; a capture without selected items gives an empty list."""
        for place in places:
            first = int(self._ends[place] - self._sizes[place])
            rows = np.arange(first, int(self._ends[place]))
            rows = rows if self._keep is None else rows[np.isin(rows, self._keep)]
            yield [self._item(int(row), place) for row in rows] if len(rows) else []

    @property
    def captures(self) -> int:
        """The number of captures of each series."""
        return len(self._sizes)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._keep is None else len(self._keep)

    def __getitem__(self, index: Any) -> Any:
        """An item by its index, counted from the end if negative; its capture is read, and kept for the next ones."""
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        number = as_index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"item {number} of {len(self)}")
        row = number % len(self) if self._keep is None else int(self._keep[number])
        return self._item(row, int(np.searchsorted(self._ends, row, side="right")))

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Items by their indices, as requested by a `DataLoader`; each capture is read once."""
        found = {index: self[index] for index in sorted(set(map(as_index, indices)))}
        return [found[as_index(index)] for index in indices]

    def __getstate__(self) -> dict[str, Any]:
        """The state without open files."""
        return {**self.__dict__, "_series": None, "_cache": OrderedDict()}

    def __repr__(self) -> str:
        return (
            f'<SampleDataset "{self._run.path}": {len(self)} items of {", ".join(self.names[:3])}{", ..." if len(self.names) > 3 else ""}>'
        )

    def _repr_html_(self) -> str:
        return html_lines(repr(self))

    def _kept(self, indices: NDArray[np.intp]) -> SampleDataset:
        other = object.__new__(SampleDataset)
        other.__dict__ = {**self.__getstate__(), "_keep": indices if self._keep is None else self._keep[indices]}
        return other

    def _item(self, row: int, place: int) -> Item:
        within = row - int(self._ends[place] - self._sizes[place])
        clock = self._clocks[place]
        item: Item = {} if self._ids is None else {"id": self._ids[row].item()}
        item |= {"epoch": int(clock["epoch"]), "step": int(clock["step"]), "row": within}
        item |= {name: np.array(rows[within]) for name, rows in zip(self.names, self._rows(place), strict=True)}
        if self._labels is not None:
            item["label"] = self._labels[item["id"]]
        return item

    def _rows(self, place: int) -> list[NDArray[Any]]:
        """The rows of one capture of each series, (rows, ...)."""
        found = self._cache.get(place)
        if found is None:
            found = [_joined(one[place].value, self._axes) for one in self._opened()]
            self._cache[place] = found
            size = sum(rows.nbytes for rows in found) or 1
            while len(self._cache) > max(CACHED // size, 1):
                self._cache.popitem(last=False)
        self._cache.move_to_end(place)
        return found

    def _opened(self) -> list[Series]:
        """The series, opened again in another process: two processes must not share file descriptors."""
        if self._series is None or self._process != os.getpid():
            run = self._run.opened_again()
            self._series, self._process = [run.find(name) for name in self.names], os.getpid()
            if not np.array_equal(self._series[0].clocks[PLACE], self._clocks):
                raise StorageError(f'"{self._run.path}" has changed since the dataset was made; make it again with `run.dataset`')
        return self._series

    def _check_labels(self, labels: Mapping[Any, Any]) -> None:
        missing = [one for one in dict.fromkeys(self.ids.tolist()) if one not in labels]
        if missing:
            known = next(iter(labels), None)
            first = f"{missing[0]!r} ({type(missing[0]).__name__})"
            has = f"has for example {known!r} ({type(known).__name__})" if labels else "is empty"
            raise UsageError(f"{len(missing)} samples have no label, such as the id {first}; `labels` maps ids to labels, and {has}")


def _joined(value: NDArray[Any], axes: int) -> NDArray[Any]:
    """A capture with its leading axes joined to one; a scalar is one row."""
    return value.reshape(-1, *value.shape[axes:])


def _same_rows(series: Sequence[Series], axes: int) -> NDArray[np.int64]:
    """(captures,) the number of rows of each capture, equal in all series."""
    first = series[0]
    sizes = first.leading_sizes(axes)
    for one in series:
        if len({shape[axes:] for shape in one.shapes}) > 1:
            raise RaggedSeries(
                f"the rows of `{one.word}` differ in shape: {one.shapes[:4]}; `axes` says how many leading axes count samples"
            )
        if not np.array_equal(one.clocks[PLACE], first.clocks[PLACE]):
            raise RaggedSeries(f"`{one.word}` and `{first.word}` were not captured in the same calls; make a dataset of each")
        if not np.array_equal(one.leading_sizes(axes), sizes):
            raise RaggedSeries(f"`{one.word}` and `{first.word}` have captures with different numbers of rows; make a dataset of each")
    return sizes


def _ids(series: Series, sizes: NDArray[np.int64]) -> NDArray[Any] | None:
    """(N,) the id of each row; None if the run recorded none."""
    if not series.has_ids:
        return None
    rows = series.row_sizes
    of_rows = np.repeat(sizes // np.maximum(rows, 1), rows)
    return np.repeat(series.ids, of_rows)


def dataset_of(run: SampledRun, word: str | Sequence[str], axes: int, labels: Mapping[Any, Any] | None) -> SampleDataset:
    """The dataset of the series that some words or patterns name; see `RunReader.dataset`."""
    if type(axes) is not int or axes < 1:
        raise UsageError(f"`axes` is how many leading axes count samples, 1 or more, not {axes!r}")
    words = [word] if isinstance(word, str) else list(word)
    found = {one.word: one for each in words for many in run.match(each) for one in many.by_dtype()}
    short = [one for one in found.values() if any(len(shape) < axes for shape in one.shapes)]
    if short:
        raise RaggedSeries(f"`{short[0].word}` has captures of {short[0].shapes[0]}, which has no {axes} leading axes that count samples")
    if not found:
        raise SeriesNotFound("the selection holds no capture")
    return SampleDataset(run, list(found.values()), axes, labels)
