"""Processes that work for this one and are not its children.

A program may wait for all of its children (`os.wait()` until there are none, tracers of processes), end them, or count them. A process
that `probes` starts for longer than one call must not be among them. So a short-lived child starts it and ends at once, as daemons are
started: see `daemon(7)`.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import IO

from probes.host import process_fields
from probes.plain_file import HeldDescriptor, duplicate_above
from probes.processes.subprocess_command import interpreter

STARTS_WITHIN = 30.0  # seconds; 10 ms are usual
_ID_BYTES = 32

# Debuggers and tracers add themselves to the commands of Python that a program starts (debugpy, VizTracer), and would wait for this one.
_BY_SHELL = ("/bin/sh", "-c", 'exec "$@"', "sh") if os.access("/bin/sh", os.X_OK) else ()

# The write end of a pipe stays open in the process as long as it runs. Its first line is the process id, or the number of an error.
_START = """
import os, sys
life = int(sys.argv[1])
try:
    process = os.fork()
except OSError as error:
    process = -error.errno
if process:
    os.write(life, b"%d" % process)
    os._exit(0)
os.execv(sys.argv[2], sys.argv[2:])
"""


class DetachedProcess:
    """A process that is not a child of this one, in a session of its own: an interrupt typed at the terminal does not reach it.

    Attributes:
        pid: its process id.
        stdin: the other end of its input, if that is a pipe; `hang_up` closes it.
        stdout: the other end of its output, if that is a pipe; likewise.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        stderr: IO[bytes] | int | None = None,
        bufsize: int = -1,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start it.

        Args:
            words: the path of an executable, and its arguments.
            stdin: as `subprocess.Popen` takes it.
            stdout: likewise.
            stderr: likewise.
            bufsize: likewise.
            env: likewise.
            pass_fds: likewise.

        Raises:
            OSError: no descriptor, memory or process is free, or there is no interpreter.
        """
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self._pipes: list[HeldDescriptor] = []
        self._life = HeldDescriptor(-1)
        held, life = os.pipe()
        self._life = HeldDescriptor(held)
        starts = None
        try:
            starts = subprocess.Popen(
                [*_BY_SHELL, interpreter(), "-S", "-P", "-c", _START, str(life), *words],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                bufsize=bufsize,
                env=env,
                pass_fds=(*pass_fds, life),
                start_new_session=True,
            )
            os.close(life)
            life = -1
            self.stdin, self.stdout = self._kept(starts.stdin, "wb", bufsize), self._kept(starts.stdout, "rb", bufsize)
            self.pid = self._started(starts)
        except BaseException:  # also after an interrupt, no end of a pipe stays open; raised again
            if life >= 0:
                os.close(life)
            if starts is not None:
                starts.kill()
                starts.wait()
                for pipe in (starts.stdin, starts.stdout):
                    if pipe is not None:
                        pipe.close()
            self.close()
            raise

    def _started(self, starts: subprocess.Popen[bytes]) -> int:
        """The process id, once the child that starts it has ended."""
        if not self._hears(STARTS_WITHIN):
            starts.kill()
        starts.wait()
        number = int(os.read(self._life.number, _ID_BYTES) or -errno.EAGAIN)
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def _kept(self, pipe: IO[bytes] | None, mode: str, bufsize: int) -> IO[bytes] | None:
        """The same end of a pipe; it is closed by `hang_up` only, and not if other code has closed it."""
        if pipe is None:
            return None
        with pipe:
            self._pipes.append(HeldDescriptor(duplicate_above(pipe.fileno())))
        return open(self._pipes[-1].number, mode, buffering=bufsize, closefd=False)

    @property
    def is_reachable(self) -> bool:
        """Whether the pipes to it are open: other code of this process may close descriptors that it did not open."""
        return self._life.is_open and all(pipe.is_open for pipe in self._pipes)

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, after waiting for that up to a time."""
        if self._life.number >= 0 and not (self._hears(seconds) if self._life.is_open else self._is_gone(seconds)):
            return False
        if os.getpid() == 1:  # in a container, the parent of all processes without one
            with suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
        return True

    def _is_gone(self, seconds: float) -> bool:
        """The same by its number, where its pipe is lost."""
        until = monotonic() + seconds
        while True:
            try:
                os.kill(self.pid, 0)
            except OSError:
                return True
            if "Z" in process_fields(self.pid)[:1]:  # ended, but the first process of a container may not ask for it
                return True
            if monotonic() >= until:
                return False
            sleep(0.01)

    def kill(self) -> None:
        """End it, unless it has ended."""
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipes; the process continues, and notices the end of its input."""
        self.hang_up()
        self._life.close()

    def hang_up(self) -> None:
        """Close its input and its output; whether it has ended can still be asked."""
        for pipe in (self.stdin, self.stdout) if self.is_reachable else ():
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        for held in self._pipes:
            held.close()

    def __del__(self) -> None:
        self.close()

    def _hears(self, seconds: float) -> bool:
        """Whether there is something to read in the pipe that the process holds, or its end."""
        poll = select.poll()  # not `select`, which supports only the first 1,024 descriptors
        poll.register(self._life.number, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
