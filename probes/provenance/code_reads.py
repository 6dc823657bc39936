"""Files that Python reads as code: a loader of one's own, or `runpy`, runs a file that is in no table of modules."""

from __future__ import annotations

import _io
import io
import os
from contextlib import suppress
from importlib.util import source_from_cache
from typing import Any

from probes.provenance.packages import is_installed

MOST_FILES = 10_000
OPEN_CODE = _io.open_code


class CodeReads:
    """Notes what `io.open_code` opens, which imports and `runpy` read sources and their caches with.

    Attributes:
        files: paths of sources of the program's own that were read while this listened.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._listeners: set[int] = set()
        self._found = OPEN_CODE

    def add(self, listener: object) -> None:
        """Begin to note, until the last listener is removed."""
        self._listeners.add(id(listener))
        if len(self._listeners) == 1 and _io.open_code != self._open_code:
            self._found = _io.open_code
            _io.open_code = io.open_code = self._open_code

    def remove(self, listener: object) -> None:
        """Note no more once nobody listens, and put back what was found, if nobody has replaced it since."""
        self._listeners.discard(id(listener))
        if not self._listeners and _io.open_code == self._open_code:
            _io.open_code = io.open_code = self._found

    def _open_code(self, path: str) -> Any:
        """Note a file, and open it."""
        if self._listeners:
            with suppress(Exception):  # whatever the path is, the program gets what the function itself says of it
                self._note(os.fspath(path))
        return self._found(path)

    def _note(self, path: str) -> None:
        source = source_from_cache(path) if path.endswith(".pyc") else path
        if not is_installed(source) and len(self.files) < MOST_FILES:
            self.files.add(source)


code_reads = CodeReads()
"""The instance of this process."""
