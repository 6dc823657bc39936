"""Files of modules that forked processes import, such as the workers of a DataLoader: `sys.modules` of the parent does not have them."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOST_BYTES = 4 << 20  # of paths


class ForkedImports(MetaPathFinder):
    """Notes paths in an anonymous file that forked processes share; nothing is called in the process that forks them."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._inode = 0

    def open(self) -> int:
        """Make the file, if it is not there; returns how many bytes it has."""
        if self._file is None:
            with suppress(OSError):  # no room for files: nothing is noted
                with tempfile.TemporaryFile() as made:
                    self._file = os.dup(made.fileno())
                    fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) | os.O_APPEND)
                self._inode = os.fstat(self._file).st_ino
        return 0 if self._file is None else os.fstat(self._file).st_size

    def noted(self, since: int) -> set[str]:
        """The paths that were noted behind the first `since` bytes."""
        size = self.open()
        if self._file is None:
            return set()
        return {one.decode(errors="replace") for one in os.pread(self._file, size - since, since).split(b"\0") if one}

    def follow(self) -> None:
        """In a forked process: note what it imports from now on."""
        if self._file is not None and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the finders behind this one find."""
        for finder in [one for one in sys.meta_path if one is not self]:
            found = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if found is not None:
                self._note(found.origin)
                return found
        return None

    def _note(self, origin: str | None) -> None:
        if origin is None or self._file is None or not origin.endswith((".py", ".so")):
            return
        with suppress(OSError):  # the process has closed every file that it inherited
            found = os.fstat(self._file)
            if found.st_ino == self._inode and found.st_size < MOST_BYTES:  # else another file has the number
                os.write(self._file, os.fsencode(origin) + b"\0")


forked_imports = ForkedImports()
"""The process's one."""
