"""Owning a run directory: one process at a time writes to it or recovers it.

The owner holds a lock on its claim that the kernel gives back when the last process that shares it has ended: the training process
and its sealer. Where the file system has no locks, or may be seen by other machines, a child beats in addition.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from weakref import WeakSet

from probes.errors import StorageError
from probes.host import boot_id, is_local, process_namespace, started
from probes.plain_file import HeldDescriptor, open_above
from probes.processes.detached_process import DetachedProcess
from probes.processes.subprocess_command import interpreter
from probes.run_directory.file_name import final_name, manifest_name, temporary_name
from probes.run_directory.owner import claim as claim_file
from probes.run_directory.owner import heartbeat
from probes.run_directory.owner.claim import HEARTBEAT, LOCK, Claim, FoundClaim, claim_name, claims, read_claim

TRIES = 20
LOOK_SECONDS = 0.05

Ends = Callable[[FoundClaim], bool]


class Ownership:
    """A run directory, or one rank's part of it, that this process owns until `release`.

    Attributes:
        directory: the run directory.
        path: the claim.
        rank: whose part; None for the whole.
        claim: the note in it.
        used: whether a journal was begun.
        inherited: the files of the starts whose claims this one has ended, as they were then.
    """

    def __init__(self, path: Path, rank: int | None, claim: Claim, descriptor: int) -> None:
        self.directory = path.parent
        self.path = path
        self.rank = rank
        self.claim = claim
        self._lock = HeldDescriptor(descriptor)
        self._process = os.getpid()
        self._pulse = HeldDescriptor(-1)
        self._heart: DetachedProcess | None = None
        self.used = False
        self.inherited: dict[str, tuple[int, int]] = {}
        self._declared: tuple[str, ...] = ()
        _OWNED.add(self)

    @property
    def shared(self) -> tuple[int, ...]:
        """The descriptors that make a child an owner of the directory too, for as long as it runs."""
        return tuple(one.number for one in (self._lock, self._pulse) if one.is_open)

    @property
    def held(self) -> bool:
        """Whether this process still owns the directory; false after `release`, in a fork, and after a takeover."""
        if not self._lock.is_open or os.getpid() != self._process:
            return False
        try:
            return os.path.samestat(self.path.stat(follow_symlinks=False), os.fstat(self._lock.number))
        except OSError:
            return False

    @property
    def left(self) -> list[str]:
        """The files of unfinished starts: of this one, or of those whose claims it has ended."""
        if (self.directory / manifest_name(1, self.rank)).exists():
            return []
        there = _files(self.directory)  # other ranks may write files of the same names meanwhile, which are theirs
        return sorted(name for name, file in there.items() if self.inherited.get(name) == file or is_of_start(name, self._declared))

    def sweep(self) -> list[str]:
        """Remove the files of unfinished starts."""
        names = self.left
        for name in names:
            (self.directory / name).unlink(missing_ok=True)
        return names

    def beat(self) -> None:
        """Start the heartbeat child, again if it died."""
        if HEARTBEAT not in self.claim.proof or (self._heart is not None and not self._heart.has_ended()):
            return
        read, write = os.pipe()
        try:
            # Run as a file, without importing this package or user code: it starts in 20 ms and takes 8 MiB.
            words = [interpreter(), "-I", "-S", heartbeat.__file__, str(self.path), str(heartbeat.BEAT_SECONDS)]
            self._heart = DetachedProcess(words, stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except BaseException:  # no end of the pipe stays open, also after an interrupt; raised again
            os.close(write)
            raise
        finally:
            os.close(read)
        before, self._pulse = self._pulse, HeldDescriptor(write)
        before.close()

    def declare(self, files: tuple[str, ...]) -> None:
        """List in the claim the files that are about to be written, so that the next start can remove them if this one is killed.

        Raises:
            OSError: the disk does not take it.
        """
        self._declared = files
        self.claim = self.claim._replace(files=(*self.claim.files, *files))
        os.pwrite(self._lock.number, json.dumps(self.claim._asdict()).encode(), 0)  # longer than the old note

    def require(self) -> None:
        """Check that nobody else has the directory: it may have been removed, and made again by another run.

        Raises:
            StorageError: the claim was removed, or is that of another process.
        """
        there, ours = read_claim(self.path), self.claim
        if there is None:
            why = f'"{self.path.name}" was removed' if self.directory.exists() else "the run directory was removed or renamed"
            raise StorageError(f'this run no longer owns "{self.directory}": {why}')
        if there.host and (there.pid, there.host, there.since, there.run_id) != (ours.pid, ours.host, ours.since, ours.run_id):
            raise StorageError(f'this run no longer owns "{self.directory}": {there} does')

    def move_to(self, directory: Path) -> None:
        """Follow the run directory to another name."""
        self.directory, self.path = directory, directory / self.path.name

    @contextmanager
    def released_if_it_fails(self) -> Iterator[None]:
        """Release the directory if the body raises."""
        try:
            yield
        except BaseException:  # after an interrupt the directory is free, too; raised again
            self.release()
            raise

    def release(self, *, to_sealer: bool = False) -> None:
        """Release the directory; a second call does nothing.

        Args:
            to_sealer: the sealer is still at work: the claim stays its, and it removes the claim when it is done.
        """
        if self._lock.number < 0:
            return
        if self.held and not to_sealer:
            with suppress(OSError):  # Files that could not be removed still belong to the claim, so the next start can remove them.
                self.sweep()
            if self._owes():
                self.close()
                return
            with suppress(OSError):  # the disk fails; a claim without a lock is recognised as released
                self.path.unlink(missing_ok=True)
        self.close()

    def __del__(self) -> None:
        """A run that was attached, never entered and forgotten releases its directory."""
        if os.getpid() == self._process:
            self.release(to_sealer=self.used)

    def _owes(self) -> bool:
        try:
            return bool(self.left)
        except OSError:
            return False

    def withdraw(self) -> None:
        """Undo the claim: remove its files too, unless it continued an earlier start."""
        for name in self.claim.files:
            (self.directory / name).unlink(missing_ok=True)
        self.release()

    def close(self) -> None:
        """Close the descriptors, and leave the claim in place."""
        self._lock.close()
        self._pulse.close()
        if self._heart is not None:
            if os.getpid() == self._process:
                self._heart.has_ended(0.5)  # it may continue for the sealer
            self._heart.close()
        self._heart = None
        _OWNED.discard(self)


_OWNED: WeakSet[Ownership] = WeakSet()


def _forked() -> None:
    """In a forked child, close the shared lock; else a worker that outlives the run would seem to own the directory."""
    for owned in tuple(_OWNED):
        owned.close()


os.register_at_fork(after_in_child=_forked)


def own(
    directory: Path,
    run_id: str,
    rank: int | None = None,
    *,
    task: str = "write",
    take_over: bool = False,
    ends: Ends = lambda found: True,
) -> Ownership:
    """Become the owner of a directory; wait for the sealer of a dead process.

    Waits for a sealer that a killed process has left.

    Args:
        directory: the run directory.
        run_id: the run that this process writes.
        rank: rank of this process, if the launch has several; ranks of one run do not exclude each other.
        task: `write` or `recover`.
        take_over: continue even if it is not known whether the owner still runs.
        ends: whether the claim of a dead owner may be ended.

    Raises:
        StorageError: another process owns it, or may own it, or the directory cannot be written to.
    """
    for _ in range(TRIES):
        there = _files(directory)  # before the claims: an owner ends the claims of the dead before it writes its first file
        found = _others(directory, run_id, rank)
        for other in found:
            _refuse_living(directory, other, take_over, task)
            if not ends(other):
                raise StorageError(_left(directory, other.claim))
        generation = max((other.generation for other in found if other.rank == rank), default=0) + 1
        carried = {name for other in found if not other.has_begun for name in other.claim.files}
        owned = _publish(directory, rank, generation, run_id, task, tuple(sorted(carried)))
        if owned is None:
            continue
        owned.inherited = {name: file for name, file in there.items() if is_of_start(name, tuple(carried))}
        # The publisher checks again, so that of two processes with different claims at least one sees the other.
        rivals = [other for other in _others(directory, run_id, rank) if other.path != owned.path]
        living = [other for other in rivals if other.path not in {one.path for one in found} and other.life == "alive"]
        if living:
            owned.release()
            sleep(LOOK_SECONDS * secrets.randbelow(10) / 10)
            continue
        for other in rivals:
            other.path.unlink(missing_ok=True)
        try:
            owned.beat()
        except OSError as error:
            owned.release()
            raise StorageError(
                f'the process that shows that the owner of "{directory}" lives cannot be started: {error.strerror}'
            ) from error
        return owned
    raise StorageError(in_use(directory, next(iter(_others(directory, run_id, rank)), None), task))


def _files(directory: Path) -> dict[str, tuple[int, int]]:
    """The inode number and the time of the last change of each file, which tell it from a later one of the same name."""
    with suppress(FileNotFoundError):
        return {entry.name: _identity(entry) for entry in os.scandir(directory)}
    return {}


def _identity(entry: os.DirEntry[str]) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        about = entry.stat(follow_symlinks=False)
        return about.st_ino, about.st_ctime_ns
    return 0, 0


def is_of_start(name: str, files: tuple[str, ...]) -> bool:
    """Whether a file is one of these, or one that was about to become one."""
    return name in files or final_name(name) in files


def _others(directory: Path, run_id: str, rank: int | None) -> list[FoundClaim]:
    """The claims that exclude a new one: of the same rank, of the whole run, or of another run."""
    whole = [found for found in claims(directory) if rank is None or found.rank in (None, rank)]
    foreign = [found for found in claims(directory) if found not in whole and found.claim.run_id != run_id]
    return whole + foreign


def _refuse_living(directory: Path, other: FoundClaim, take_over: bool, task: str) -> None:
    deadline = monotonic() + claim_file.PATIENCE + 3 * heartbeat.BEAT_SECONDS
    while (life := other.life) == "alive" and _is_left(other) and monotonic() < deadline:
        sleep(LOOK_SECONDS)
    if life == "alive":
        raise StorageError(in_use(directory, other, task))
    if life == "unknown" and not take_over:
        raise StorageError(
            f'run directory "{directory}" is claimed by {other.claim}, and from here it is not known whether that process still runs: '
            "if it does not, use `--take-over` (`take_over=True`)"
        )


def _is_left(other: FoundClaim) -> bool:
    """Whether only a sealer can hold a claim: its process has ended, or is this one and has released it."""
    ours = other.claim.is_near and (other.claim.pid, other.claim.started) == (os.getpid(), started(os.getpid()))
    return other.is_orphaned or (ours and not any(owned.path == other.path for owned in _OWNED))


def _publish(directory: Path, rank: int | None, generation: int, run_id: str, task: str, files: tuple[str, ...]) -> Ownership | None:
    """Create a claim, complete and locked from its first moment; None if another process was faster."""
    path = directory / claim_name(rank, generation)
    temporary = directory / temporary_name("claim")
    descriptor = -1
    try:
        descriptor = open_above(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        claim = _note(descriptor, directory, run_id, task, files)
        os.write(descriptor, json.dumps(claim._asdict()).encode())
        _name(temporary, path)
    except FileExistsError:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        return None
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        way = "recover a copy of it" if task == "recover" else "choose another directory with `out`"
        raise StorageError(f'run directory "{directory}" is not writable: {error.strerror}; {way}') from error
    return Ownership(path, rank, claim, descriptor)


def _note(descriptor: int, directory: Path, run_id: str, task: str, files: tuple[str, ...]) -> Claim:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        proof = LOCK if is_local(directory) else f"{LOCK} {HEARTBEAT}"
    except OSError:  # no locks on this file system
        proof = HEARTBEAT
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    pid = os.getpid()
    return Claim(pid, socket.gethostname(), now, run_id, boot_id(), started(pid), process_namespace(), proof, task, files)


def _name(temporary: Path, path: Path) -> None:
    """Give the claim its name without replacing another; the open file keeps its lock."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # no links on this file system
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        temporary.replace(path)
    else:
        temporary.unlink()


def in_use(directory: Path, holder: FoundClaim | None, task: str = "write") -> str:
    """The error for a second owner of a directory, who wants it for a task."""
    claim = holder.claim if holder is not None else None
    if claim is not None and claim.is_near and claim.pid == os.getpid():
        ways = "end it with `run.close()`, or with `resume=True, take_over=True`"
        return f'run directory "{directory}" is in use by {claim}, which is this process: {ways}'
    if holder is not None and holder.is_orphaned:
        ways = "wait for it, or end it if it hangs"
        return f'run directory "{directory}" is in use by the sealer of {claim}, which is dead: {ways}'
    waits = task == "recover" or (claim is not None and claim.task == "recover")
    ways = "wait for its end" + (", or end it" if task == "recover" else "") if waits else "choose another directory with `out`"
    rank = f"rank {holder.rank}, " if holder is not None and holder.rank is not None else ""
    return f'run directory "{directory}" is in use by {rank}{claim or "another run"}; {ways}'


def _left(directory: Path, claim: Claim) -> str:
    ways = "continue it with `--resume` (`resume=True`), seal its journals with `probes recover`, or choose another directory with `out`"
    return f'run directory "{directory}" is claimed by {claim}, which is dead: {ways}'
