"""The note by which a process owns a run directory, and whether that process still runs."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from pathlib import Path
from typing import NamedTuple

from probes.errors import FileRefused, StorageError
from probes.host import boot_id, is_local, process_namespace, started
from probes.plain_file import plain_object, read_plain
from probes.run_directory.file_name import final_name, manifest_name, temporary_name
from probes.run_directory.owner.heartbeat import BEAT_SECONDS

PATIENCE = 60.0  # seconds without a heartbeat after which an owner counts as ended
LARGEST_NOTE = 1 << 20
LOCK, HEARTBEAT = "lock", "heartbeat"

_NAME = re.compile(r"claim(?:\.rank-(\d{4,}))?(?:\.(\d+))?\.json")


class Claim(NamedTuple):
    """The note of the process that owns a run directory.

    Attributes:
        pid: its number.
        host: the machine it runs on.
        since: when it claimed the directory, UTC.
        run_id: the run it writes.
        boot_id: the start of the machine it runs in; empty if not known.
        started: when the process began, in ticks since then; empty if not known.
        namespace: what its number counts in; containers have their own. Empty if not known.
        proof: how it shows that it runs, `lock` and `heartbeat`; empty in notes of releases that had neither.
        task: `write` a run, `recover` one, or `start` one for all ranks of a launch.
        files: names that its start is about to write; those that exist belong to that start.
    """

    pid: int
    host: str
    since: str
    run_id: str = ""
    boot_id: str = ""
    started: str = ""
    namespace: str = ""
    proof: str = ""
    task: str = "write"
    files: tuple[str, ...] = ()

    @property
    def is_near(self) -> bool:
        """Whether its number can be looked up from here: the same machine, start and namespace."""
        near = self.host == socket.gethostname() and self.boot_id in ("", boot_id())
        return near and self.namespace in ("", process_namespace())

    @property
    def runs(self) -> bool:
        """Whether the process of this number, near enough to be looked up, still runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return not self.started or started(self.pid) in (self.started, "")

    def __str__(self) -> str:
        doing = f" (`probes {self.task}`)" if self.task == "recover" else ""
        return f"pid {self.pid} on host {self.host} since {self.since}{doing}" if self.host else "a run that did not start"


class FoundClaim(NamedTuple):
    """A claim in a run directory.

    Attributes:
        path: its file.
        rank: whose it is; None for that of the whole run.
        generation: 1, and one more each time that it was taken over.
        claim: the note; without a host where it cannot be read.
    """

    path: Path
    rank: int | None
    generation: int
    claim: Claim

    @property
    def life(self) -> str:
        """`alive`, `dead`, or `unknown`: a lock that is held, or a heart that beats, is proof of life.

        A lock that is free is proof of death only on one machine: a server of files need not know the locks of its clients.
        """
        claim, lock = self.claim, _lock_of(self.path)
        if lock == "gone":
            return "dead"
        if lock == "held":
            return "alive"
        if HEARTBEAT in claim.proof:
            return "alive" if self._beats() else "dead"
        if not claim.host:  # it is locked from the first moment, if the file system has locks
            return "dead" if lock == "free" or (_age(self.path) or PATIENCE) >= PATIENCE else "alive"
        if LOCK in claim.proof and lock == "free" and (claim.boot_id == boot_id() or is_local(self.path.parent)):
            return "dead"
        if claim.is_near:
            return "alive" if claim.runs else "dead"
        return "dead" if not claim.proof and claim.host == socket.gethostname() and claim.boot_id not in ("", boot_id()) else "unknown"

    @property
    def has_begun(self) -> bool:
        """Whether its start was finished: the manifest, which is written last, exists."""
        return (self.path.parent / manifest_name(1, self.rank)).exists()

    @property
    def is_orphaned(self) -> bool:
        """Whether its process has certainly ended; only its sealer can then still hold the claim."""
        return bool(self.claim.host) and self.claim.is_near and not self.claim.runs

    def _beats(self) -> bool:
        age = _age(self.path)
        if age is not None and 0 <= age < PATIENCE:
            return True
        # The clock may have been set, so a heartbeat counts only if it is seen to change. An owner that ended normally has marked that.
        before = _modified(self.path)
        until = time.monotonic() + (3 * BEAT_SECONDS if before else 0)
        while time.monotonic() < until:
            time.sleep(BEAT_SECONDS / 20)
            if _modified(self.path) != before:
                return True
        return False


def claim_name(rank: int | None = None, generation: int = 1) -> str:
    """The file name of a claim; every rank of a launch has its own."""
    again = f".{generation}" if generation > 1 else ""
    return f"claim{'' if rank is None else f'.rank-{rank:04d}'}{again}.json"


def is_claim(name: str) -> bool:
    """Whether a file name is that of a claim, or of a claim that is being written."""
    return _NAME.fullmatch(name) is not None or final_name(name) == "claim"


def claims(directory: Path) -> list[FoundClaim]:
    """All claims on a directory; a claim that was taken over comes before its successor."""
    found = []
    for path in directory.glob("claim*.json"):
        name = _NAME.fullmatch(path.name)
        claim = read_claim(path) if name is not None else None
        if name is not None and claim is not None:
            found.append(FoundClaim(path, None if name[1] is None else int(name[1]), int(name[2] or 1), claim))
    return sorted(found, key=lambda one: (one.rank is not None, one.rank or 0, one.generation))


def read_claim(path: Path) -> Claim | None:
    """A note; None if it was removed. A note that cannot be read names no owner."""
    try:
        note = plain_object(read_plain(path, LARGEST_NOTE))
        known = {key: str(note[key]) for key in ("run_id", "boot_id", "started", "namespace", "proof", "task") if key in note}
        return Claim(int(note["pid"]), str(note["host"]), str(note["since"]), **known, files=tuple(map(str, note.get("files", ()))))
    except StorageError as error:
        return None if isinstance(error.__cause__, FileNotFoundError) else Claim(0, "", "an unknown time")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, FileRefused):
        return Claim(0, "", "an unknown time")


def _lock_of(path: Path) -> str:
    """`held`, `free`, `none` if the file system has no locks, or `gone`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # opening a pipe must not block
    except FileNotFoundError:
        return "gone"
    except OSError:
        return "none"
    try:
        # A shared lock, so that two processes that look at the same time do not take each other for the owner.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "none"
    finally:
        os.close(handle)
    return "free"


def _modified(path: Path) -> int:
    """The time of the last change of a file, in nanoseconds; 0 if it was removed, or its owner ended normally."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _age(path: Path) -> float | None:
    """Seconds since the last change of a file, by the clock of its file system; None if that clock cannot be read."""
    probe = path.with_name(temporary_name("claim"))
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        now = probe.stat().st_mtime
        probe.unlink()
        return now - path.stat().st_mtime
    except OSError:
        return None
