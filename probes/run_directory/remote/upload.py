"""Copy a run into a remote store: sealed files, then the ledger that lists them; existing copies are kept."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from probes.errors import StorageError
from probes.progress.loops import with_progress
from probes.run_directory.file_name import final_name, ledger_files
from probes.run_directory.ledger_lines import read_ledger
from probes.run_directory.remote.store import RemoteFolder

T = TypeVar("T")
TRIES = 5
OTHERS = ("run*.json", "spec*.yaml", "sources*.zip", "launch*.json", "end*.json")
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds between two tries


class Upload:
    """The copy of a run in a store, which can continue where an earlier one, or another process, ended.

    Args:
        directory: the run directory.
        store: the folder in the store.
        wait: waits some seconds before another try.
    """

    def __init__(self, directory: Path, store: RemoteFolder, wait: Callable[[float], None] = time.sleep) -> None:
        self.directory = directory
        self.store = store
        self.wait = wait
        self._there: dict[str, int] | None = None

    def sync(self) -> list[str]:
        """Upload what the store lacks, and return the names of the files.

        A ledger goes after the files that it lists, so that a reader of the store never misses one.

        Raises:
            StorageError: no upload of a file succeeded in `TRIES` tries, or a file of the ledger is not here; the next call continues.
        """
        if self._there is None:
            self._there = self._trying(self.store.sizes)
        return list(self._missing(self._there))

    def _missing(self, there: dict[str, int]) -> Iterator[str]:
        for ledger in ledger_files(self.directory):
            content = read_ledger(ledger)  # read before its files: a line that is added meanwhile waits for the next call
            for line in with_progress(content.entries, "file"):
                path = self.directory / line.file
                if there.get(line.file) == line.bytes:
                    continue
                if not path.exists():
                    raise StorageError(f'"{path}" is in the ledger and is not there; `probes verify` says more')
                yield self._put(path, there)
            if there.get(ledger.name, -1) != content.end:
                yield self._put_start(ledger, there, content.end)
        for path in self._others():
            if there.get(path.name) != path.stat().st_size:
                yield self._put(path, there)

    def _others(self) -> list[Path]:
        """The small files that belong to the run: manifests, spec, sources, and what the ranks of a launch left."""
        found = (path for pattern in OTHERS for path in self.directory.glob(pattern))
        return sorted(path for path in found if path.is_file() and final_name(path.name) is None)

    def _put(self, path: Path, there: dict[str, int]) -> str:
        size = path.stat().st_size
        self._trying(lambda: self.store.put(path, path.name))
        there[path.name] = size
        return path.name

    def _put_start(self, path: Path, there: dict[str, int], size: int) -> str:
        """Upload the first bytes of a file that may grow meanwhile."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, path.name)
            with path.open("rb") as file:
                copy.write_bytes(file.read(size))
            return self._put(copy, there)

    def _trying(self, call: Callable[[], T]) -> T:
        for pause in (*PAUSES[: TRIES - 1], None):
            try:
                return call()
            except StorageError:
                if pause is None:
                    raise
                self.wait(pause)
        raise AssertionError("BUG: the last try returns or raises")
