"""Series of a journal that is not sealed yet; read only."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.capture_file.grouped import JournalSeries as Arranged
from probes.capture_file.grouped import group_by_series, steps_in_order
from probes.capture_file.read import SealedFile
from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import CLOCKS, SeriesPart, StepColumn, StepIds, Variants, uniform
from probes.clock import SeriesKey
from probes.errors import FileRefused, StorageError
from probes.journal.record import HEADER_BYTES
from probes.journal.scan import Scan, scan
from probes.signature import Coord


class SealedMeanwhile(StorageError):
    """A journal was sealed and written over while it was read."""


class UnsealedFile:
    """The committed captures of a journal, of a running process or of one that died.

    Attributes:
        path: where it is.
        attributes: run, epoch, attempt, rank and completeness, as a sealed file has them.
        sealed: that it is a journal.
    """

    sealed = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = _Bytes(path)  # before the scan, so that both refer to the same journal
        self._scan: Scan = scan(path)
        self._bytes.begins_as(path)
        end = self._scan.end or {}
        self.attributes: dict[str, Any] = {name: self._scan.head.get(name) for name in ("run_id", "epoch", "attempt", "rank")}
        self.attributes["first_step"] = self._scan.head.get("first_step", 0)
        self.attributes |= {"complete": int(self._scan.trusted and bool(end.get("complete"))), "reason": end.get("reason", "")}

    @cached_property
    def addresses(self) -> dict[SeriesAddress, Arranged]:
        """Every series of the journal, in canonical order."""
        return {SeriesAddress(series.key, series.suffix): series for series in group_by_series(self._scan)}

    def part(self, address: SeriesAddress) -> UnsealedPart:
        """One series of the journal."""
        return UnsealedPart(self.addresses[address], self._bytes, lambda: SealedFile(self.path.with_suffix(".h5")).part(address))

    def ids(self, phase: str) -> StepIds | None:
        """The sample ids of the steps of a phase, if the run has them."""
        found = []
        for index, annex in self._scan.annexes:
            commit = self._scan.commits[index]
            if "ids" in annex and self._scan.phases[commit["phase"]] == phase:
                found.append((commit["step"], annex["ids"]))
        if not found:
            return None
        flat = [sample for _, ids in found for sample in ids]
        return StepIds(np.array([step for step, _ in found]), np.array([len(ids) for _, ids in found]), np.array(flat))

    def document(self, name: str) -> Any:
        """The `manifest`, `closing` or `order` of the journal."""
        if name == "order":
            return steps_in_order(self._scan)
        return self._scan.head.get("manifest") if name == "manifest" else (self._scan.end or {}).get(name)

    def spec(self) -> str:
        """The spec, as it was written."""
        return str(self._scan.head.get("spec", ""))


class UnsealedPart:
    """One series in a journal; see `Part`."""

    def __init__(self, series: Arranged, contents: _Bytes, sealed: Callable[[], SeriesPart]) -> None:
        self._sealed = sealed
        self.key: SeriesKey = series.key
        self.dtype = series.dtype
        self.dims = series.dims
        self.coords: dict[str, Coord] = {name: tuple(labels) for name, labels in series.coords.items()}
        self.attrs = series.attrs
        self.variants = Variants(tuple(series.variants), series.variant) if series.variants else None
        self.clocks = np.zeros(series.count, CLOCKS)
        for name in ("epoch", "step", "microstep", "call", "backward", "rank"):
            self.clocks[name] = series.clocks[name]
        self.clocks["global_step"] = series.global_steps
        self.steps = StepColumn(self.clocks)
        self.orders = series.order
        self.shapes = series.shape_table()
        self.shape = uniform(self.shapes)
        self._bytes, self._kind = contents, bits_dtype(self.dtype)
        self._sizes, self._offsets = series.sizes, series.offsets

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat; fresh memory."""
        try:
            return np.concatenate([np.empty(0, self._kind), *(self._piece(index) for index in range(first, last))])
        except SealedMeanwhile:
            return self._out_of_file(first, last)

    def _out_of_file(self, first: int, last: int) -> NDArray[Any]:
        """The same captures from the file that was built from the journal, which may hold more.

        Raises:
            SealedMeanwhile: they are not there.
        """
        try:
            file = self._sealed()
        except (FileRefused, KeyError, OSError) as error:
            raise self._bytes._was_removed() from error
        places: list[NDArray[Any]] = []
        for clock in self.clocks[first:last]:
            (found,) = np.nonzero(file.clocks == clock)
            if len(found) != 1:
                raise self._bytes._was_removed()
            places.append(file.elements(int(found[0]), int(found[0]) + 1))
        return np.concatenate([np.empty(0, self._kind), *places])

    def _piece(self, index: int) -> NDArray[Any]:
        return np.frombuffer(self._bytes.read(int(self._offsets[index]), int(self._sizes[index])), self._kind)


class _Bytes:
    """Reads of a journal that another process may seal, remove or overwrite meanwhile; a memory map could crash or show other data.

    A journal that was removed is still read, by its descriptor. One that is written over gets another HEAD first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe must not block
        except OSError as error:
            raise StorageError(f'"{path}" cannot be read: {error.strerror}; if it was sealed meanwhile, open the run again') from error
        weakref.finalize(self, os.close, self._descriptor)
        self._head = os.pread(self._descriptor, HEADER_BYTES, 0)

    def begins_as(self, path: Path) -> None:
        """Check that a path leads to the journal that was scanned.

        Raises:
            StorageError: it does not.
        """
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(self._descriptor)) and self._is_same():
                return
        raise self._was_removed()

    def read(self, offset: int, length: int) -> bytes:
        """Some bytes that certainly belong to this journal."""
        data = os.pread(self._descriptor, length, offset)
        if len(data) != length or not self._is_same():
            raise self._was_removed()
        return data

    def _is_same(self) -> bool:
        return os.pread(self._descriptor, HEADER_BYTES, 0) == self._head

    def _was_removed(self) -> SealedMeanwhile:
        return SealedMeanwhile(f'"{self._path}" was sealed or removed while it was read; open the run again')
