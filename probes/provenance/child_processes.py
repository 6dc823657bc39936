"""Child processes of a program, such as the workers of a DataLoader: a hook before each start, and the files of modules that they import.

`sys.modules` of the parent does not have these modules. A forked child begins to note them when it is forked. A child of `spawn` or
`forkserver` gets an attribute of its process object; reading it from the pickle begins to note, and names what was imported until then.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import context, reduction
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from probes.plain_file import HeldDescriptor, duplicate_above
from probes.provenance.code_files import file_of
from probes.provenance.packages import is_installed

MOST_BYTES = 4 << 20  # of paths

Listener = Callable[[BaseProcess], AbstractContextManager[Any]]
"""Called with a process that is about to start; the returned context is entered around the start."""


class ProcessStarts:
    """A single hook before the start of each child process: `BaseProcess.start` is replaced while there are listeners, in any order."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._replaced: tuple[Any, Any] | None = None

    def add(self, listener: Listener) -> None:
        """Call a listener before each start from now on."""
        self._listeners.append(listener)
        if self._replaced is None or BaseProcess.start is not self._replaced[1]:
            self._replace()

    def remove(self, listener: Listener) -> None:
        """Remove a listener; a method that the program has replaced meanwhile stays in place."""
        self._listeners.remove(listener)
        if not self._listeners and self._replaced is not None and BaseProcess.start is self._replaced[1]:
            BaseProcess.start = self._replaced[0]  # type: ignore[method-assign]  # the original function, saved above
            self._replaced = None

    def _replace(self) -> None:
        original = BaseProcess.start

        @wraps(original)
        def start(process: BaseProcess) -> None:
            last = self._replaced is not None and self._replaced[1] is start  # the program's method may call this replacement
            with ExitStack() as around:
                for listener in tuple(self._listeners) if last else ():
                    around.enter_context(listener(process))
                original(process)

        self._replaced = (original, start)
        BaseProcess.start = start  # type: ignore[method-assign, assignment]  # restored by `remove`


process_starts = ProcessStarts()
"""The instance of this process."""


class ChildImports(MetaPathFinder):
    """Notes paths in an anonymous file that child processes share."""

    def __init__(self) -> None:
        self._file = HeldDescriptor(-1)
        self._runs = 0
        self._heard = False

    def start(self) -> None:
        """A run opens: children that start from now on record their imports."""
        self._runs += 1
        if self._runs > 1 or not self._file.is_open:
            return
        process_starts.add(_asked_to_note)
        self._heard = True

    def stop(self) -> None:
        """A run is over."""
        self._runs -= 1
        if not self._runs and self._heard:
            process_starts.remove(_asked_to_note)
            self._heard = False

    def open(self) -> int:
        """Create the file, if it does not exist; return its size in bytes."""
        if self._file.number < 0:
            with suppress(OSError), tempfile.TemporaryFile() as made:  # the file system is full: nothing is recorded
                number = duplicate_above(made.fileno())
                fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
                self._file = HeldDescriptor(number)
        status = self._file.status()
        return 0 if status is None else status.st_size

    def noted(self, since: int) -> set[str]:
        """The paths recorded after the first `since` bytes."""
        size = self.open()
        if size <= since:
            return set()
        return {one.decode(errors="replace") for one in os.pread(self._file.number, size - since, since).split(b"\0") if one}

    def follow(self) -> None:
        """In a forked process: record its imports from now on."""
        if self._file.is_open and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def follow_from(self, file: int) -> None:
        """In a process that was not forked: record its imports so far and from now on."""
        self._file = HeldDescriptor(file)
        for module in list(sys.modules.values()):
            self._note(file_of(module))
        self.follow()

    def share(self) -> Any:
        """The file in the form for a child that is about to start; None if there is no run or no file."""
        return reduction.DupFd(self._file.number) if self._file.is_open and context.get_spawning_popen() is not None else None

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Records the modules that later finders find."""
        for finder in [one for one in sys.meta_path if one is not self]:
            found = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if found is not None:
                self._note(found.origin)
                return found
        return None

    def _note(self, origin: object) -> None:
        if not isinstance(origin, str) or not origin.endswith((".py", ".so")) or is_installed(origin):
            return
        found = self._file.status()  # the process may have closed all inherited files
        if found is not None and found.st_size < MOST_BYTES:
            with suppress(OSError):
                os.write(self._file.number, os.fsencode(origin) + b"\0")


@contextmanager
def _asked_to_note(process: BaseProcess) -> Iterator[None]:
    """An attribute of the process object that exists only while it is pickled."""
    process.__dict__[_ATTRIBUTE] = _AskedToNote()
    try:
        yield
    finally:
        process.__dict__.pop(_ATTRIBUTE, None)


class _AskedToNote:
    """Unpickles as None, and starts recording in the process that reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return follow_in_child, (child_imports.share(),)


def follow_in_child(shared: Any) -> None:
    """Start recording in a child of `spawn` or `forkserver`; on any failure the child continues without it."""
    with suppress(Exception):
        child_imports.follow_from(shared.detach())


child_imports = ChildImports()
"""The instance of this process."""

_ATTRIBUTE = "_probes_imports"
