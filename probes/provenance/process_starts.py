"""A single hook before the start of each child process; listeners can be added and removed in any order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from multiprocessing.process import BaseProcess
from typing import Any

Listener = Callable[[BaseProcess], AbstractContextManager[Any]]
"""Called with a process that is about to start; the returned context is entered around the start."""


class ProcessStarts:
    """Replaces `BaseProcess.start` while there are listeners."""

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
