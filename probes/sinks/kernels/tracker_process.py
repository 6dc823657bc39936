"""A tracker in a separate process, which needs no time or memory of the training."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import IO, Any

from probes.component import Reading
from probes.errors import MissingExtra
from probes.processes.detached_process import DetachedProcess
from probes.processes.subprocess_command import command
from probes.sinks.kernels.background import Tracker

READY = b"\x1eready\n"  # the first line of the child itself
LENGTH = Struct("<Q")
ENDED = 5.0  # seconds for a process that has nothing left to do


class TrackerProcess:
    """A tracker whose methods are called in a child process, a new interpreter at a low priority.

    Sending takes milliseconds of processor time for each hundred numbers in some trackers (MLflow's database, Aim), and a thread would
    take them from the interpreter that trains. Each call waits for the child, so it belongs in a thread.

    Args:
        connect: makes the tracker; called in the child, so it can be pickled.

    Raises:
        OSError: the child cannot be started.
    """

    def __init__(self, connect: Callable[[], Tracker]) -> None:
        self._child = DetachedProcess(
            command("probes.sinks.kernels.tracker_child"), env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        )
        self._unanswered = 0
        self._ready = False
        self._say([path for path in sys.path if path])
        self._say(connect)  # the exit status is not needed: the answer, which `write` reads first, says whether it worked

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        """Write the readings of some steps.

        Raises:
            OSError: the tracker cannot be reached, refuses them, or the child has died.
            MissingExtra: the package of the tracker is not installed.
        """
        self._ask(("write", list(map(list, steps))))

    def end(self, tags: Mapping[str, str]) -> None:
        """End the run, and the child."""
        self._ask(("end", dict(tags)))
        self._release()

    def give_up(self) -> None:
        """End the child without waiting for its work."""
        self._child.kill()

    def _ask(self, request: Any) -> None:
        """Send a request to the child, and wait until it is done."""
        assert self._child.stdout is not None
        self._say(request)
        while self._unanswered:
            try:
                self._skip_greetings(self._child.stdout)
                answer = received(self._child.stdout)
            except EOFError:
                self._release()
                raise OSError("the process that sends to the tracker has ended") from None
            self._unanswered -= 1
            if answer is not None:
                self._release()
                missing, message = answer
                raise MissingExtra(message) if missing else OSError(message)

    def _skip_greetings(self, output: IO[bytes]) -> None:
        """Read what the interpreter prints when it starts, such as a line of `sitecustomize`, once.

        Raises:
            EOFError: the child has ended.
        """
        while not self._ready:
            line = output.readline()
            if not line:
                raise EOFError
            self._ready = line.endswith(READY)

    def _say(self, request: Any) -> None:
        assert self._child.stdin is not None
        self._unanswered += 1
        with suppress(BrokenPipeError):  # the end of its answers shows that it has died
            send(self._child.stdin, request)

    def _release(self) -> None:
        self._child.hang_up()
        if not self._child.has_ended(ENDED):
            self._child.kill()
        self._child.close()


def send(pipe: IO[bytes], content: Any) -> None:
    """Write an object after its length."""
    data = pickle.dumps(content)
    pipe.write(LENGTH.pack(len(data)) + data)
    pipe.flush()


def received(pipe: IO[bytes]) -> Any:
    """Read an object from the other process.

    Raises:
        EOFError: the other process has ended.
    """
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    data = pipe.read(*LENGTH.unpack(head))
    return pickle.loads(data)
