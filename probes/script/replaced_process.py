"""A program that replaces its process by another one, with a function of the family `os.exec`, or that ends it with `os._exit`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from probes.run_directory.create import typed
from probes.script.run_request import Command

NAMES = ("execv", "execve")  # all others of `os` end in one of the two
EXIT = "_exit"


class ReplacedProcess:
    """Adds the probes again if a program starts itself again, as with other variables; says so if it becomes another program.

    Args:
        command: how this process was started; None if that is not known.
        is_used: whether a run is open, so that its directory cannot take another start of the program.
        notice: called with what to say, also of a quiet run: no later line could say it.
        directories: those of the open runs.
    """

    def __init__(
        self,
        command: Command | None,
        is_used: Callable[[], bool],
        notice: Callable[[str], None],
        directories: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        self.command = command
        self.is_used = is_used
        self.notice = notice
        self.directories = directories
        self._pid = os.getpid()
        self._replaced: dict[str, tuple[Any, Any]] = {}

    def start(self) -> None:
        """Begin to watch."""
        for name in (*NAMES, EXIT):
            original = getattr(os, name)
            watching = self._leaving(original) if name == EXIT else self._watching(original)
            self._replaced[name] = (original, watching)
            setattr(os, name, watching)

    def stop(self) -> None:
        """Stop watching; a function that the program has replaced meanwhile stays in place."""
        for name, (original, watching) in self._replaced.items():
            if getattr(os, name) is watching:
                setattr(os, name, original)
        self._replaced.clear()

    def _watching(self, original: Any) -> Any:
        @wraps(original)
        def execute(path: Any, words: Any, *environment: Any) -> Any:
            return original(path, self._words(path, words), *environment)

        return execute

    def _leaving(self, original: Any) -> Any:
        @wraps(original)
        def leave(status: int) -> Any:
            with suppress(OSError, ValueError, RuntimeError):  # stderr may be closed, or in use where a signal handler leaves
                for directory in self.directories() if os.getpid() == self._pid else ():
                    self.notice(f"`os._exit` ends the program while its run is open: `probes recover {typed(directory)}` seals it")
            return original(status)

        return leave

    def _words(self, path: Any, words: Any) -> Any:
        """The arguments of the new process: with probes, or unchanged."""
        try:
            given = [os.fsdecode(path), *[os.fsdecode(word) for word in words][1:]] if os.getpid() == self._pid else []
        except TypeError:
            return words  # the original function says what is wrong with them
        if not given or self.command is None or tuple(given[: len(self.command.before)]) == self.command.before:
            return words  # a forked child is not captured, and who repeats the whole command has the probes anyway
        again = self.command.again(given)
        if again is not None and not self.is_used():
            return again
        if os.access(given[0], os.X_OK):  # else the search for a program tries the next folder
            self.notice(self._told(given, same=again is not None))
        return words

    def _told(self, given: list[str], *, same: bool) -> str:
        shown = shlex.join(given)
        if same:
            return f"the program starts itself again while its run is open, and that start is not captured: {shown}"
        return f"the program becomes another one, in which nothing is captured: {shown}"
