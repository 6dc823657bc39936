"""Joining a run as a rank of a launch: the ranks agree by files alone, and any of them may be the first.

The first rank to come owns the whole directory for a moment. It seals what earlier starts have left, of every rank, and writes the
launch file; then each rank owns its own part. A rank that comes later finds the launch file with the token of its start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from probes.errors import FileRefused, StorageError, UsageError
from probes.run_directory.create import claim, has_begun
from probes.run_directory.file_name import manifest_name
from probes.run_directory.launch.launch_file import LaunchRecord, is_launch_file, launches, write_launch
from probes.run_directory.launch.launcher import Launcher, ticks
from probes.run_directory.owner.claim import PATIENCE, claims
from probes.run_directory.owner.ownership import Ownership, own
from probes.run_directory.resume import PreviousAttempts, last_attempt, previous_attempts

LOOK_SECONDS = 0.05
TRIES = 3
START = "start"  # the text in the claim of an owner that begins, or continues, the run for all ranks


@dataclass(frozen=True)
class Newcomer:
    """A rank that wants to write a run.

    Attributes:
        directory: the run directory.
        run_id: name of the run, if it is a new one.
        launcher: what started the process.
        world: number of processes of the launch.
        rank: its own; None if the launch has one process.
        resume: continue the run that is there, if there is one.
        take_over: continue even if it is not known whether the owner of an earlier start still lives.
        spec: identity of its spec; empty if it is not to be compared.
    """

    directory: Path
    run_id: str
    launcher: Launcher
    world: int
    rank: int | None
    resume: bool = False
    take_over: bool = False
    spec: str = ""

    def is_restarted(self, last: LaunchRecord) -> bool:
        """Whether the launcher has restarted the processes of an earlier start, which then continue the run without `resume`.

        torchrun does not count a restart after a change of its nodes. A process that began before the last start is not of a restart: its
        program attaches a second time.
        """
        by = self.launcher
        again = by.restart > last.restart or (by.agent == last.agent and by.began > last.ticks)
        return bool(self.launcher.id) and self.launcher.job == last.job and again


class Joined(NamedTuple):
    """The part of a run that a rank owns.

    Attributes:
        owned: the part.
        record: the start that it is of.
        past: the results of the earlier starts.
    """

    owned: Ownership
    record: LaunchRecord
    past: PreviousAttempts


def join(one: Newcomer) -> Joined:
    """Join the start of a run, or begin it.

    Raises:
        StorageError: the directory holds another run, another process owns it, or a file in it is damaged.
    """
    record = agreed(one)
    owned = _own_part(one, record)
    with owned.released_if_it_fails():
        past = previous_attempts(owned) if record.attempt > 1 else PreviousAttempts()
    return Joined(owned, record, replace(past, attempt=record.attempt, next_epoch=record.next_epoch))


def agreed(one: Newcomer) -> LaunchRecord:
    """The launch file of this start; the first rank to come writes it.

    Raises:
        StorageError: the directory holds another run, or another process owns it.
        UsageError: the first rank has another spec.
    """
    found = _found_or_begun(one)
    if found.spec and one.spec not in ("", found.spec):
        raise UsageError(
            f"rank {one.rank} has another spec ({one.spec[:8]}) than the rank that came first ({found.spec[:8]}); all ranks of a launch "
            "have one spec, in which `when: {ranks: {at: [0]}}` restricts a probe to some of them"
        )
    return found


def _found_or_begun(one: Newcomer) -> LaunchRecord:
    deadline = monotonic() + PATIENCE + 15  # the owner may be on a machine that stopped
    refused = 0
    while True:
        last = _last(one.directory)
        if last is not None and last.token == one.launcher.token and not _is_over(one, last):
            return last
        restarted = last is not None and one.is_restarted(last)
        try:
            return _begin(one, last, again=one.resume or restarted, restarted=restarted)
        except StorageError:
            starting = _is_starting(one.directory)  # The owner writes the launch file and then releases the directory
            now = _last(one.directory)
            other_was_faster = now is not None and now != last and now.token == one.launcher.token
            patient = restarted and monotonic() < deadline
            # The owner that refused this rank may have released the directory between the refusal and these looks, so only the third
            # refusal is final.
            refused = 0 if starting else refused + 1
            if not (other_was_faster or patient or refused < TRIES):
                raise
        sleep(LOOK_SECONDS)


def _last(directory: Path) -> LaunchRecord | None:
    with suppress(FileRefused):  # on a file system without links, an empty file is about to be replaced
        return next(reversed(launches(directory).values()), None)
    return None


def _is_over(one: Newcomer, record: LaunchRecord) -> bool:
    """Whether this rank has joined a start before; the same settings then belong to a later start."""
    return (one.directory / manifest_name(record.attempt, one.rank)).exists()


def _is_starting(directory: Path) -> bool:
    return any(found.rank is None and found.claim.task == START and found.life == "alive" for found in claims(directory))


def _begin(one: Newcomer, last: LaunchRecord | None, *, again: bool, restarted: bool) -> LaunchRecord:
    """Write the launch file, as the owner of the whole directory."""
    begun = again and has_begun(one.directory)
    if begun:
        owned = own(one.directory, one.run_id, task=START, take_over=one.take_over or restarted)
    else:
        owned = claim(one.directory, one.run_id, task=START, take_over=one.take_over or restarted)
    try:
        found = _last(one.directory)
        if found != last and found is not None and found.token == one.launcher.token:
            return found
        past = previous_attempts(owned) if begun else PreviousAttempts()
        if not begun:
            for path in one.directory.glob("launch*.json"):  # of a start that was killed before any rank had written its manifest
                path.unlink() if is_launch_file(path.name) else None
            for path in one.directory.glob("end.rank-*.json"):  # and the notes of its ranks that called no model
                path.unlink()
        attempt = last_attempt(one.directory) + 1 if begun else 1
        record = _record(one, attempt, past.next_epoch)
        write_launch(one.directory, record)
        return record
    except OSError as error:
        raise StorageError(f'cannot write a launch file in "{one.directory}": {error.strerror}') from error
    finally:
        owned.release()


def _record(one: Newcomer, attempt: int, next_epoch: int) -> LaunchRecord:
    by = one.launcher
    return LaunchRecord(
        run_id=one.run_id,
        attempt=attempt,
        world=one.world,
        next_epoch=next_epoch,
        launcher=by.name,
        job=by.job,
        restart=by.restart,
        agent=by.agent,
        ticks=ticks(),
        token=by.token,
        started=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        spec=one.spec,
    )


def _own_part(one: Newcomer, record: LaunchRecord) -> Ownership:
    """Own the part of this rank; a rank that checks whether it is the first holds the whole directory for a moment."""
    refused = 0
    while True:
        try:
            if record.attempt > 1:
                return own(one.directory, record.run_id, one.rank, take_over=one.take_over)
            return claim(one.directory, record.run_id, one.rank, take_over=one.take_over)
        except StorageError:
            refused = 0 if _is_starting(one.directory) else refused + 1
            if refused >= TRIES:  # the owner may have released it since it refused this rank
                raise
        sleep(LOOK_SECONDS)
