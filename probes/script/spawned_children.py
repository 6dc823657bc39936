"""Telling the user at once that processes which a script starts for its training are not captured."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

SPAWN = "torch.multiprocessing.spawn"


class SpawnedChildren:
    """Watches for children of `torch.multiprocessing.spawn`, which Lightning's `ddp_spawn` and notebook launchers use too.

    Args:
        notice: called once, with what to say.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.notice = notice
        self._noticed = False
        self._pid = os.getpid()
        self._replaced: tuple[Any, Any] | None = None

    def start(self) -> None:
        """Begin to watch."""
        original = BaseProcess.start
        watch = self

        def start(process: BaseProcess) -> None:
            watch._starts(process)
            original(process)

        self._replaced = (original, start)
        BaseProcess.start = start  # type: ignore[method-assign, assignment]  # restored by `stop`

    def stop(self) -> None:
        """Watch no more; a method that the program has replaced since stays the program's."""
        if self._replaced is not None and BaseProcess.start is self._replaced[1]:
            BaseProcess.start = self._replaced[0]  # type: ignore[method-assign]  # the very function found there
        self._replaced = None

    def _starts(self, process: BaseProcess) -> None:
        target = getattr(process, "_target", None)
        if self._noticed or os.getpid() != self._pid or getattr(target, "__module__", "") != SPAWN:
            return
        self._noticed = True
        self.notice(
            "the script starts processes with `torch.multiprocessing.spawn`; `probes run` does not capture what they do: "
            "call `probes.attach` in the function that they run, or start the script with "
            "`torchrun --nproc-per-node N -m probes run SPEC SCRIPT`"
        )
