"""The training process's end of the sealer: it sends journals, and rarely waits."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakSet

from probes.digest import canonical
from probes.errors import ProbesError
from probes.host import process_fields
from probes.plain_file import HeldDescriptor, duplicate_above
from probes.processes.detached_process import DetachedProcess
from probes.processes.subprocess_command import answered, command
from probes.run_directory.ledger import SealedFileInfo
from probes.run_directory.owner.ownership import Ownership

MOST_WAITING = 2
ATTEMPTS = 2
MOST_SENT = 100  # requests in the pipe at a time, so that writing to it never blocks
QUIT_SECONDS = 10.0
PATIENCE = 60.0  # seconds without any work of the child after which it counts as stuck, also on a slow disk
HOLD_SECONDS = 2.0  # the longest time that a stuck child delays the training

LOOK_SECONDS = 1.0

_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class SealFailure:
    """A journal that could not be sealed; it still exists, for `probes recover`.

    Attributes:
        journal: its name.
        message: what went wrong.
    """

    journal: str
    message: str


@dataclass
class _SealRequest:
    """A journal that was handed over, without an answer yet.

    Attributes:
        journal: its name.
        options: as `seal` takes them.
        attempts: how often a child was given it.
        sent: whether the child that runs now was.
    """

    journal: str
    options: dict[str, Any]
    attempts: int = 1
    sent: bool = False


class SealerProcess:
    """Sends journals to one child process, a new interpreter without torch; uses no thread and no lock.

    The child starts with the first journal. When it is killed, it is started again, and the journal it was sealing is tried once
    more. When this process is killed, the child seals what it was given and ends; until then the directory is not free.

    Attributes:
        directory: the run directory.
        failures: journals that could not be sealed.
        waited_seconds: how long `submit` had to wait because the child was late.
        at_work: whether a child was let go before it was done; the claim of the directory is then its own.
    """

    def __init__(self, directory: Path, owned: Ownership | None = None) -> None:
        self.directory = directory
        self.failures: list[SealFailure] = []
        self.waited_seconds = 0.0
        self.at_work = False
        self._owned = owned
        self._process = os.getpid()
        self._child: DetachedProcess | None = None
        self._errors = HeldDescriptor(-1)
        self._orders: list[_SealRequest] = []
        self._received = b""
        self._finished: list[SealedFileInfo] = []
        self._unstarted = ""
        self._still = False
        self._most_waiting = MOST_WAITING
        _FEEDING.add(self)

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
        while len(self._orders) >= self._most_waiting and self._child is not None and self._hears(None, HOLD_SECONDS):
            pass
        self.waited_seconds += monotonic() - began
        self._orders.append(_SealRequest(journal.name, dict(options or {})))
        self._feed()

    def hurry(self) -> None:
        """Make `submit` never wait again, because the program is ending."""
        self._most_waiting = sys.maxsize

    def poll(self) -> list[SealedFileInfo]:
        """The files that were sealed since the last call; never waits."""
        if not self._is_fork():
            self._receive(0.0)
        finished, self._finished = self._finished, []
        return finished

    @property
    def waiting(self) -> int:
        """The number of journals that were handed over and are not sealed, as far as the last `poll` knows."""
        return len(self._orders)

    def drain(self, timeout: float | None = None) -> list[SealedFileInfo]:
        """Wait until everything is sealed, then end the child.

        Args:
            timeout: seconds to wait at most; what is not sealed by then becomes a failure here, while the child continues.
        """
        if self._is_fork():
            return []
        deadline = None if timeout is None else monotonic() + timeout
        self._still = False
        self._feed()
        while self._orders and self._child is not None and self._hears(deadline, PATIENCE):
            pass
        if self._child is None and timeout is None:
            self._seal_here()
        late, self._orders = self._orders, []
        in_time = deadline is None or monotonic() < deadline
        why = self._unstarted or _stands_still() if in_time else f"not sealed after {timeout} seconds; the sealer continues"
        self.failures += [SealFailure(order.journal, why) for order in late]
        self.at_work = bool(late) and self._child is not None
        self._release(wait=not late and timeout is None)
        return self.poll()

    def _hears(self, deadline: float | None, patience: float) -> bool:
        """Wait for the next answer of the child; False when the time is up, or the child is stuck."""
        done, since = self._work(), monotonic()
        while deadline is None or monotonic() < deadline:
            look = min(LOOK_SECONDS, patience)
            until = monotonic() + look if deadline is None else min(deadline, monotonic() + look)
            if self._receive(max(until - monotonic(), 0.0)) or self._child is None:
                self._still = False
                return True
            if self._work() != done:
                done, since, self._still = self._work(), monotonic(), False
            elif self._still or monotonic() - since >= patience:
                self._still = True
                return False
        return False

    def _work(self) -> str:
        """Processor time of the child, or the time now if the system does not report it."""
        if self._child is None:
            return ""
        return " ".join(process_fields(self._child.pid)[11:13]) or str(monotonic())

    def _is_fork(self) -> bool:
        """Whether this process is a fork of the one that talks to the child."""
        return os.getpid() != self._process

    def _feed(self) -> None:
        """Start the child if there is none, and send it new journals, as many as the pipe takes."""
        if self._orders and self._child is None:
            try:
                self._start()
            except OSError as error:  # no descriptor, memory or process is free: the journals wait, and the next one tries again
                self._unstarted = f"the sealer cannot be started: {error.strerror or error}"
                return
        sent = sum(order.sent for order in self._orders)
        for order in [order for order in self._orders if not order.sent][: MOST_SENT - sent]:
            order.sent = self._send({"journal": order.journal, "options": order.options})

    def _seal_here(self) -> None:
        """Seal the journals for which no child can be started: the program has no interpreter, or the system is out of processes."""
        for order in tuple(self._orders):
            from probes.run_directory.seal import seal  # with h5py, which the process that trains does without otherwise

            try:
                sealed = asdict(seal(self.directory / order.journal, self.directory, order.options))
            except (ProbesError, OSError) as error:
                sealed = {"journal": order.journal, "error": f"{self._unstarted}, and here: {error}"}
            self._answered(sealed)

    def _start(self) -> None:
        self._received, self._unstarted = b"", ""
        for order in self._orders:
            order.sent = False
        try:
            with tempfile.TemporaryFile() as file:
                self._errors = HeldDescriptor(duplicate_above(file.fileno()))
        except OSError:  # the directory for temporary files is full or gone
            self._errors = HeldDescriptor(-1)
        try:
            self._child = DetachedProcess(
                command("probes.run_directory.seal", str(self.directory.resolve())),
                stderr=self._errors.number if self._errors.is_open else subprocess.DEVNULL,
                bufsize=0,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=self._owned.shared if self._owned is not None else (),
            )
        except OSError:
            self._errors.close()
            raise
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)

    def _send(self, message: Mapping[str, Any]) -> bool:
        """Send a line to the child; return whether that was possible."""
        if self._child is None or self._child.stdin is None or not self._child.is_reachable:
            return False
        try:
            self._child.stdin.write(canonical(message) + b"\n")
        except BrokenPipeError:
            return False  # it died; the end of its output reports that
        return True

    def _receive(self, seconds: float) -> bool:
        """Read the answers of the child, waiting up to a time; return whether it answered or died."""
        if self._child is None or self._child.stdout is None:
            return False
        if not self._child.is_reachable:
            self._bury()
            return True
        output = self._child.stdout.fileno()
        poll = select.poll()  # not `select`, which supports only the first 1,024 descriptors
        poll.register(output, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        piece = os.read(output, _READ_BYTES)
        if not piece:
            self._bury()
            return True
        *lines, self._received = (self._received + piece).split(b"\n")
        for answer in filter(None, map(answered, lines)):
            self._answered(answer)
        self._feed()
        return True

    def _answered(self, answer: dict[str, Any]) -> None:
        order = next((order for order in self._orders if order.journal == answer["journal"]), None)
        if order is None:
            return
        self._orders.remove(order)
        if "error" in answer:
            self.failures.append(SealFailure(order.journal, answer["error"]))
            return
        found = SealedFileInfo(**answer)
        if found.captures != order.options.get("captures", found.captures):
            text = f'{found.captures} of the {order.options["captures"]} committed captures are in "{found.file}"'
            self.failures.append(SealFailure(order.journal, text))
        self._finished.append(found)

    def _bury(self) -> None:
        """The child has died: retry its current journal once, and send the following ones for the first time."""
        words = self._release(wait=True)
        if self._orders and self._orders[0].attempts >= ATTEMPTS:
            order = self._orders.pop(0)
            text = f"the sealer ended twice on this journal; its last words: {words or 'none, as after a kill'}"
            self.failures.append(SealFailure(order.journal, text))
        elif self._orders:
            self._orders[0].attempts += 1
        self._feed()

    def _release(self, wait: bool) -> str:
        """Let the child end; return its last output."""
        if self._child is None:
            return ""
        claim = {"claim": self._owned.path.name, "descriptor": self._owned.shared[0]} if self.at_work and self._owned is not None else {}
        self._send({"quit": True, **claim})
        child, self._child = self._child, None
        errors, self._errors = self._errors, HeldDescriptor(-1)
        child.hang_up()
        if wait and not child.has_ended(QUIT_SECONDS):
            child.kill()
            child.has_ended(QUIT_SECONDS)
        child.close()
        return _last_words(errors)

    def go_inert(self) -> None:
        """Close the pipes in a forked process, so that the child notices when the process of the run ends."""
        if self._child is not None:
            self._child.close()
            self._child = None


_FEEDING: WeakSet[SealerProcess] = WeakSet()


def _forked() -> None:
    for feeding in tuple(_FEEDING):
        feeding.go_inert()


os.register_at_fork(after_in_child=_forked)


def _last_words(errors: HeldDescriptor) -> str:
    status, words = errors.status(), b""
    if status is not None:
        with suppress(OSError):
            words = os.pread(errors.number, _READ_BYTES, max(status.st_size - _READ_BYTES, 0))
    errors.close()
    return (words.decode(errors="replace").strip().splitlines() or [""])[-1]


def _stands_still() -> str:
    return f"the sealer made no progress for {PATIENCE:g} seconds"
