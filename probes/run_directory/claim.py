"""The note by which a process makes a run directory its own, and whether that process still runs."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from probes.errors import StorageError
from probes.host import boot_id

CLAIM = "claim.json"


class Claim(NamedTuple):
    """The note of the process that writes to a run directory.

    Attributes:
        pid: its number.
        host: the machine it runs on.
        since: when it claimed the directory, UTC.
        run_id: the run it writes.
        boot_id: the start of the machine it runs in; empty where not known.
        started: when the process began, in ticks since then; empty where not known.
    """

    pid: int
    host: str
    since: str
    run_id: str = ""
    boot_id: str = ""
    started: str = ""

    @property
    def state(self) -> str:
        """`dead`, `alive`, or `unknown` where it runs on another machine."""
        if self.host != socket.gethostname():
            return "unknown"
        if self.boot_id and self.boot_id != boot_id():
            return "dead"
        if self.pid == os.getpid():
            return "alive"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "dead"
        except PermissionError:
            return "alive"
        return "dead" if self.started and _started(self.pid) not in (self.started, "") else "alive"

    def __str__(self) -> str:
        return f"pid {self.pid} on host {self.host} since {self.since}"


def claim_name(rank: int | None = None) -> str:
    """The file name of a claim; every rank of a launch has its own."""
    return CLAIM if rank is None else f"claim.rank-{rank:04d}.json"


def claim_of(directory: Path, name: str = CLAIM) -> Claim | None:
    """The claim on a directory; None if absent. An unreadable one was never finished, and is nobody's."""
    try:
        note = json.loads((directory / name).read_text("utf-8"))
        known = {key: str(note.get(key, "")) for key in ("run_id", "boot_id", "started")}
        return Claim(int(note["pid"]), str(note["host"]), str(note.get("since", "an unknown time")), **known)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Claim(0, "", "an unknown time")


def is_claim(name: str) -> bool:
    """Whether a file name is that of a claim."""
    return name.startswith("claim.") and name.endswith(".json")


def claims(directory: Path) -> dict[str, Claim]:
    """Every claim on a directory by its file name."""
    names = sorted(path.name for path in directory.iterdir() if is_claim(path.name))
    return {name: claim for name in names if (claim := claim_of(directory, name)) is not None}


def take(directory: Path, run_id: str, rank: int | None = None, *, take_over: bool = False) -> None:
    """Claim a directory for this process.

    Args:
        directory: the run directory.
        run_id: the run that this process writes.
        rank: rank of this process, where the launch has several.
        take_over: continue where a process that is dead, or on another machine, left its claim.

    Raises:
        StorageError: another process holds it, has left its claim behind, or the directory cannot be written to.
    """
    path = directory / claim_name(rank)
    note = Claim(os.getpid(), socket.gethostname(), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", run_id, boot_id(), _started(os.getpid()))
    try:
        with locked(directory):
            before = claim_of(directory, path.name)
            if before is not None:
                _may_end(directory, before, take_over)
                path.unlink()
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(note._asdict(), file)
    except FileExistsError:
        raise StorageError(in_use(directory, claim_of(directory, path.name))) from None
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f'run directory "{directory}" is not writable: {error.strerror}; choose another directory with `out`') from error


def _may_end(directory: Path, before: Claim, take_over: bool) -> None:
    """Refuse to end a claim that may still be somebody's."""
    if before.state == "alive":
        raise StorageError(in_use(directory, before))
    if not take_over:
        raise StorageError(
            f'run directory "{directory}" is claimed by {before if before.host else "a run that did not start"}, '
            + ("which is dead" if before.state == "dead" or not before.host else "whose state is unknown on this host")
            + ": resume it with `--take-over` (`take_over=True`), or seal its journals with `probes recover`"
        )


def in_use(directory: Path, holder: Claim | None) -> str:
    """What is said to the second run in a directory."""
    who = str(holder) if holder is not None and holder.host else "another run"
    if holder is not None and holder.state == "dead":
        ways = "continue that run with `--resume --take-over` (`resume=True, take_over=True`), or choose another directory with `out`"
        return f'run directory "{directory}" is claimed by {who}, which is dead: {ways}'
    ways = "choose another directory with `out`, or run `probes recover` if that run is dead"
    return f'run directory "{directory}" is in use by {who}; {ways}'


def release(directory: Path, rank: int | None = None) -> None:
    """Let go of a directory that this process has claimed; a claim that somebody took over stays."""
    claim = claim_of(directory, claim_name(rank))
    if claim is not None and (claim.pid, claim.host) == (os.getpid(), socket.gethostname()):
        with suppress(OSError):  # a disk that fails; the claim of a process that is gone is known for what it is
            (directory / claim_name(rank)).unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, so that two processes do not end one claim; without it where the file system has none."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _started(pid: int) -> str:
    """When a process began, in ticks since the machine started; empty where the system does not know."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
