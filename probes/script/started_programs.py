"""Capture in the programs that a trainer starts for its other ranks, such as Lightning's strategy `ddp`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import wraps
from typing import Any

from probes.run_directory.launch.launcher import BY_SCRIPT, STARTED_BY, started_by
from probes.script.run_request import Command


class StartedPrograms:
    """Starts the script for other local ranks in the same way as this process: with probes.

    Args:
        command: how this process was started; None if that is not known.
    """

    def __init__(self, command: Command | None) -> None:
        self.command = command
        self._replaced: tuple[Any, Any] | None = None

    def start(self) -> None:
        """Begin to watch."""
        if self.command is None:
            return
        original, watch = subprocess.Popen.__init__, self

        @wraps(original)
        def init(process: Any, args: Any, *more: Any, **named: Any) -> None:
            words = watch._words(args, named.get("env"))
            if words is not args:
                os.environ[BY_SCRIPT] = "1"
                named["env"] = {**named["env"], STARTED_BY: started_by(), BY_SCRIPT: "1"}
            original(process, words, *more, **named)

        self._replaced = (original, init)
        subprocess.Popen.__init__ = init  # type: ignore[method-assign, assignment]  # restored by `stop`

    def stop(self) -> None:
        """Stop watching; a method that the program has replaced meanwhile stays in place."""
        if self._replaced is not None and subprocess.Popen.__init__ is self._replaced[1]:
            subprocess.Popen.__init__ = self._replaced[0]  # type: ignore[method-assign]  # the original function, saved above
        self._replaced = None
        os.environ.pop(BY_SCRIPT, None)

    def _words(self, args: Any, env: Any) -> Any:
        """The command line unchanged, or with probes if it starts the same script for another local rank."""
        given = env.items() if isinstance(env, Mapping) else ()
        texts = {name: value for name, value in given if isinstance(name, str) and isinstance(value, str)}  # not all, for `os.environb`
        rank = texts.get("LOCAL_RANK", "")
        if self.command is None or "WORLD_SIZE" not in texts or not rank.isdecimal() or rank == os.environ.get("LOCAL_RANK", ""):
            return args
        again = self.command.again([str(word) for word in args]) if isinstance(args, list | tuple) else None
        return args if again is None else again
