"""A run of a remote store, on this machine: its small files at once, capture files when they are read."""

from __future__ import annotations

import weakref
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from probes.errors import StorageError
from probes.run_directory.file_name import is_ledger, parse_stem
from probes.run_directory.remote.store import RemoteFolder


class RemoteMirror:
    """A local folder that mirrors a run in a store, and is removed with this object.

    Args:
        url: the folder in the store.

    Raises:
        MissingExtra: a package for the store is not installed.
        StorageError: the store cannot be read, or has no run there.

    Attributes:
        url: the folder in the store.
        path: the folder of this machine.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = RemoteFolder(url)
        self._sizes = self._store.sizes()
        if not any(name == "run.json" or is_ledger(name) or _is_capture_file(name) for name in self._sizes):
            raise StorageError(f'"{url}" holds no run: there is no run.json, no ledger and no epoch file in it')
        self.path = Path(mkdtemp(prefix="probes-"))
        weakref.finalize(self, rmtree, self.path, ignore_errors=True)
        for name in self._sizes:
            if not _is_capture_file(name):
                self._store.get(name, self.path / name)

    def fetch(self, name: str) -> None:
        """Download a capture file, if the store has it and it is not here."""
        if name in self._sizes and not (self.path / name).exists():
            self._store.get(name, self.path / name)

    def fetch_all(self) -> None:
        """Download every capture file."""
        for name in self._sizes:
            self.fetch(name)


def _is_capture_file(name: str) -> bool:
    try:
        parse_stem(name)
    except ValueError:
        return False
    return True
