"""Capture in the programs that a trainer starts for its other ranks, such as Lightning's strategy `ddp`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
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

    def _words(self, args: Any, env: Mapping[str, str] | None) -> Any:
        """The command line unchanged, or with probes if it starts the same script for another local rank."""
        rank = (env or {}).get("LOCAL_RANK", "")
        if self.command is None or "WORLD_SIZE" not in (env or {}) or not rank.isdecimal() or rank == os.environ.get("LOCAL_RANK", ""):
            return args
        if not isinstance(args, list | tuple) or not args or str(args[0]) != sys.executable:
            return args
        words = [str(word) for word in args[1:]]
        return [*self.command.before, *words] if self._is_ours(words) else args

    def _is_ours(self, words: Sequence[str]) -> bool:
        program = self.command.program if self.command is not None else ()
        if program[:1] == ("-m",):
            return tuple(words[:2]) == program[:2] or words[1:2] == [f"{program[1]}.__main__"]
        return bool(words) and os.path.realpath(words[0]) == os.path.realpath(program[0])
