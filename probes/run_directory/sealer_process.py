"""The training process's end of the child that seals: it is fed journals and never waited for without need."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any

from probes.digest import canonical
from probes.run_directory.ledger import SealedFileInfo
from probes.run_directory.subprocess_command import command

MOST_WAITING = 2
ATTEMPTS = 2
QUIT_SECONDS = 10.0
PATIENCE = 60.0  # seconds in which a child that works does something, however slow the disk is

LOOK_SECONDS = 1.0

_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class SealFailure:
    """A journal that could not be sealed; it is still there, for `probes recover`.

    Attributes:
        journal: its name.
        message: what went wrong.
    """

    journal: str
    message: str


@dataclass
class _SealRequest:
    """A journal that was handed over and not answered for."""

    journal: str
    options: dict[str, Any]
    attempts: int = 1


class SealerProcess:
    """Feeds journals to one child process, a fresh interpreter without torch; no thread and no lock.

    The child starts with the first journal. When it dies, it is started again, and the journal it died of is tried once
    more. When this process dies, the child seals what it was given and ends.

    Attributes:
        directory: the run directory.
        failures: journals that could not be sealed.
        waited_seconds: how long `submit` had to wait because the child was behind.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.failures: list[SealFailure] = []
        self.waited_seconds = 0.0
        self._process = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._orders: list[_SealRequest] = []
        self._received = b""
        self._finished: list[SealedFileInfo] = []
        self._still = False
        self._most_waiting = MOST_WAITING

    def submit(self, journal: Path, options: Mapping[str, Any] | None = None) -> None:
        """Hand over an ended journal; waits while two others are not sealed yet, unless the child makes no progress.

        Args:
            journal: a journal in the run directory.
            options: as `seal` takes them.
        """
        if self._is_fork():
            return
        began = monotonic()
        self._receive(0.0)
        while len(self._orders) >= self._most_waiting and self._hears(None):
            pass
        self.waited_seconds += monotonic() - began
        if len(self._orders) >= self._most_waiting:
            self.failures.append(SealFailure(journal.name, _stands_still()))
            return
        order = _SealRequest(journal.name, dict(options or {}))
        self._orders.append(order)
        if self._child is None:
            self._start()
        self._send(order)

    def hurry(self) -> None:
        """Let `submit` wait for nothing any more, as the program is being ended."""
        self._most_waiting = sys.maxsize

    def poll(self) -> list[SealedFileInfo]:
        """What was sealed since the last call; never waits."""
        if not self._is_fork():
            self._receive(0.0)
        finished, self._finished = self._finished, []
        return finished

    def drain(self, timeout: float | None = None) -> list[SealedFileInfo]:
        """Wait until everything is sealed, and let the child go.

        Args:
            timeout: seconds to wait at most; what is not sealed by then becomes a failure here, while the child continues.

        Returns:
            What was sealed since the last call.
        """
        if self._is_fork():
            return []
        deadline = None if timeout is None else monotonic() + timeout
        while self._orders and self._hears(deadline):
            pass
        late, self._orders = self._orders, []
        in_time = deadline is None or monotonic() < deadline
        why = _stands_still() if in_time else f"not sealed after {timeout} seconds; the sealer continues in the background"
        self.failures += [SealFailure(order.journal, why) for order in late]
        self._release(wait=not late and timeout is None)
        return self.poll()

    def _hears(self, deadline: float | None) -> bool:
        """Wait for the child's next word; False when the time is up, or the child has done nothing for too long."""
        done, since = self._work(), monotonic()
        while deadline is None or monotonic() < deadline:
            until = monotonic() + LOOK_SECONDS if deadline is None else min(deadline, monotonic() + LOOK_SECONDS)
            if self._receive(max(until - monotonic(), 0.0)) or self._child is None:
                self._still = False
                return True
            if self._work() != done:
                done, since, self._still = self._work(), monotonic(), False
            elif self._still or monotonic() - since > PATIENCE:
                self._still = True
                return False
        return False

    def _work(self) -> str:
        """Processor time and state of the child, or the time now where the system does not know them."""
        if self._child is None:
            return ""
        try:
            fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return str(monotonic())
        return " ".join(fields[11:13])

    def _is_fork(self) -> bool:
        """Whether this is a fork of the process that feeds the child; only that one may talk to it."""
        return os.getpid() != self._process

    def _start(self) -> None:
        self._received = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._child = subprocess.Popen(
            command("probes.run_directory.seal", str(self.directory.resolve())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # an interrupt typed at the terminal does not reach it
        )
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)

    def _send(self, order: _SealRequest | None) -> None:
        """Name a journal to the child; nothing means that it may go."""
        message = {"quit": True} if order is None else {"journal": order.journal, "options": order.options}
        if self._child is None or self._child.stdin is None:
            return
        try:
            # Two short lines at most are in the pipe, so this cannot block.
            self._child.stdin.write(canonical(message) + b"\n")
        except BrokenPipeError:
            return  # it died; the end of its output shows that

    def _receive(self, seconds: float) -> bool:
        """Take what the child has said, waiting for it so long; whether it said something, or died."""
        if self._child is None or self._child.stdout is None:
            return False
        output = self._child.stdout.fileno()
        if not select.select([output], [], [], seconds)[0]:
            return False
        piece = os.read(output, _READ_BYTES)
        if not piece:
            self._bury()
            return True
        *lines, self._received = (self._received + piece).split(b"\n")
        for line in lines:
            self._answered(json.loads(line))
        return True

    def _answered(self, answer: dict[str, Any]) -> None:
        self._orders = [order for order in self._orders if order.journal != answer["journal"]]
        if "error" in answer:
            self.failures.append(SealFailure(answer["journal"], answer["error"]))
        else:
            self._finished.append(SealedFileInfo(**answer))

    def _bury(self) -> None:
        """The child has died: try the journal it died of once more, and those behind it for the first time."""
        status, words = self._release(wait=True)
        if self._orders and self._orders[0].attempts >= ATTEMPTS:
            order = self._orders.pop(0)
            self.failures.append(
                SealFailure(order.journal, f"the sealer ended twice on this journal, last with exit status {status}: {words}".rstrip(": "))
            )
        elif self._orders:
            self._orders[0].attempts += 1
        if self._orders:
            self._start()
            for order in self._orders:
                self._send(order)

    def _release(self, wait: bool) -> tuple[int | None, str]:
        """Let the child go; its exit status and its last words."""
        child, self._child = self._child, None
        errors, self._errors = self._errors, None
        if child is None or errors is None:
            return None, ""
        self._child = child
        self._send(None)
        self._child = None
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        if wait:
            _end(child)
        else:
            child.returncode = 0  # it outlives us on purpose, so Python is not to warn of it
        with errors:
            errors.seek(0)
            words = errors.read().decode(errors="replace").strip().splitlines()
        return child.returncode, words[-1] if words else ""


def _stands_still() -> str:
    return f"the sealer made no progress for {PATIENCE:g} seconds"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child that has nothing left to do."""
    try:
        child.wait(QUIT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
