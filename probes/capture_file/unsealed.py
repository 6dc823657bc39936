"""Series out of a journal that no file has been built of yet; read only."""

from __future__ import annotations

import os
import weakref
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.capture_file.grouped import JournalSeries as Arranged
from probes.capture_file.grouped import group_by_series
from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import CLOCKS, StepColumn, StepIds, uniform
from probes.clock import SeriesKey
from probes.errors import StorageError
from probes.journal.scan import Scan, scan
from probes.signature import Coord


class UnsealedFile:
    """The committed captures of a journal, live or left behind by a process that died.

    Attributes:
        path: where it is.
        attributes: run, epoch, attempt, rank and completeness, as a sealed file has them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = _Bytes(path)  # before the scan, so that both are of one journal
        self._scan: Scan = scan(path)
        end = self._scan.end or {}
        self.attributes: dict[str, Any] = {name: self._scan.head.get(name) for name in ("run_id", "epoch", "attempt", "rank")}
        self.attributes |= {"complete": int(self._scan.trusted and bool(end.get("complete"))), "reason": end.get("reason", "")}

    @cached_property
    def addresses(self) -> dict[SeriesAddress, Arranged]:
        """Every series of the journal, in canonical order."""
        return {SeriesAddress(series.key, series.suffix): series for series in group_by_series(self._scan)}

    def part(self, address: SeriesAddress) -> UnsealedPart:
        """One series of the journal."""
        return UnsealedPart(self.addresses[address], self._bytes)

    def ids(self, phase: str) -> StepIds | None:
        """The sample ids of the steps of a phase, where the run has them."""
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
        """The `manifest` or `closing` of the journal."""
        return self._scan.head.get("manifest") if name == "manifest" else (self._scan.end or {}).get(name)

    def spec(self) -> str:
        """The spec, as it was written."""
        return str(self._scan.head.get("spec", ""))


class UnsealedPart:
    """One series in a journal; see `Part`."""

    def __init__(self, series: Arranged, contents: _Bytes) -> None:
        self.key: SeriesKey = series.key
        self.dtype = series.dtype
        self.dims = series.dims
        self.coords: dict[str, Coord] = {name: tuple(labels) for name, labels in series.coords.items()}
        self.attrs = series.attrs
        self.clocks = np.zeros(series.count, CLOCKS)
        for name in ("epoch", "step", "microstep", "call", "backward", "rank"):
            self.clocks[name] = series.clocks[name]
        self.clocks["global_step"] = series.global_steps
        self.steps = StepColumn(self.clocks)
        self.shapes = series.shape_table()
        self.shape = uniform(self.shapes)
        self._bytes, self._kind = contents, bits_dtype(self.dtype)
        self._sizes, self._offsets = series.sizes, series.offsets

    def elements(self, first: int, last: int) -> NDArray[Any]:
        """The exact bits of the captures `first` to `last` (exclusive), flat; fresh memory."""
        return np.concatenate([np.empty(0, self._kind), *(self._piece(index) for index in range(first, last))])

    def _piece(self, index: int) -> NDArray[Any]:
        return np.frombuffer(self._bytes.read(int(self._offsets[index]), int(self._sizes[index])), self._kind)


class _Bytes:
    """Reads of a journal that another process may seal, remove or recycle meanwhile; a map could crash or lie."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe must not wait for its other end
        except OSError as error:
            raise StorageError(f'"{path}" cannot be read: {error.strerror}; if it was sealed meanwhile, open the run again') from error
        weakref.finalize(self, os.close, self._descriptor)
        self._identity = self._now()

    def read(self, offset: int, length: int) -> bytes:
        """Some bytes, certainly of this journal."""
        data = os.pread(self._descriptor, length, offset)
        if len(data) != length or self._now() != self._identity:
            raise StorageError(f'"{self._path}" was sealed or removed while it was read; open the run again')
        return data

    def _now(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return (-1, -1)
        return status.st_dev, status.st_ino
