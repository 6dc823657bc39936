"""The files of a run: the journal of the open epoch or segment, and a sealer for finished ones."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from probes.errors import StorageError
from probes.journal.record_writer import refusal
from probes.journal.writer import Journal
from probes.run_directory.file_name import CONTINUED, Stem
from probes.run_directory.launch.launch_file import LaunchRecord
from probes.run_directory.ledger import SealedFileInfo
from probes.run_directory.owner.ownership import Ownership
from probes.run_directory.publish import write_whole
from probes.run_directory.sealer_process import SealerProcess, SealFailure

GATHER_BYTES = 1 << 20  # more memory than this does not make commits faster


class Recording:
    """Writes epochs into a run directory.

    Args:
        owned: the run directory.
        head: the common part of every journal's HEAD: run id, manifest, spec.
        rank: rank of this process, if the launch has several.
        launch: the start that all ranks share, if there are several.
        attempt: number of this start of the run.
        durability: `process` or `power`.
        buffer_bytes: limit of the bytes that wait in memory.
        segment_steps: steps after which a long epoch continues in another file; None for one file an epoch.
        compression: of the sealed files.
    """

    def __init__(
        self,
        owned: Ownership,
        head: dict[str, Any],
        *,
        rank: int | None = None,
        launch: LaunchRecord | None = None,
        attempt: int = 1,
        durability: str = "process",
        buffer_bytes: int | None = None,
        segment_steps: int | None = None,
        compression: str = "none",
    ) -> None:
        self.owned = owned
        self.directory = owned.directory
        self.head = head
        self.rank = rank
        self.launch = launch if rank is not None else None
        self.attempt = attempt
        self.durability = durability
        self.buffer_bytes = buffer_bytes
        self.segment_steps = segment_steps
        self.options = {"compression": compression, "spare": True, "run_id": head.get("run_id")}
        self.sealer = SealerProcess(owned.directory, owned)
        self.journal: Journal | None = None
        self.sealed: list[SealedFileInfo] = []
        self._stem = Stem(0)
        self._starts: dict[str, int] = {}
        self._first_step = 0
        self._steps = 0

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of this start, as plain data."""
        return self.head.get("manifest") or {}

    def open(self, epoch: int, starts: dict[str, int], first_step: int = 0) -> Journal:
        """Begin the journal of an epoch.

        Args:
            epoch: its number.
            starts: steps of every phase in earlier epochs.
            first_step: number of its first training step.

        Raises:
            StorageError: the journal cannot be created, or the directory is no longer this run's.
        """
        self.owned.used = True
        with suppress(OSError):  # no file descriptor is free: the next epoch tries again
            self.owned.beat()
        self._starts, self._first_step = starts, first_step
        return self._create(Stem(epoch, self.attempt, 1 if self.segment_steps else 0, self.rank))

    def is_full(self) -> bool:
        """Count a finished step; return whether the next step begins a new segment."""
        self._steps += 1
        return self.segment_steps is not None and self._steps >= self.segment_steps

    def next_segment(self) -> Journal:
        """End the open segment and begin the next of the same epoch; uncommitted captures are discarded."""
        self.close(False, CONTINUED, {"segment": self._stem.segment})
        return self._create(self._stem._replace(segment=self._stem.segment + 1))

    def close(self, complete: bool, reason: str, closing: dict[str, Any]) -> None:
        """End the open journal and hand it to the sealer."""
        journal, self.journal = self.journal, None
        if journal is None:
            return
        waited = {"journal_seconds": round(journal.waited_ns / 1e9, 6), "sealer_seconds": round(self.sealer.waited_seconds, 6)}
        try:
            journal.end(complete, reason, {**closing, "waited": waited})
        except StorageError as error:
            journal.close()
            raise refusal(f'{error}; the journal is kept: `probes recover "{self.directory}"` seals it', error) from error
        self.sealer.submit(journal.path, {**self.options, "captures": journal.captures})
        self.sealed += self.sealer.poll()

    def keep_sources(self, content: bytes) -> dict[str, str]:
        """Write a zip file of sources next to the open journal; return its name and SHA-256.

        Raises:
            StorageError: it cannot be written.
        """
        name = f"sources.{self._stem}.zip"
        try:
            write_whole(self.directory / name, content)
        except OSError as error:
            raise StorageError(f'cannot write "{self.directory / name}": {error.strerror}') from error
        return {"name": name, "sha256": sha256(content).hexdigest()}

    def discard(self) -> None:
        """Release every file, so that the directory can be removed: nothing more is sealed."""
        journal, self.journal = self.journal, None
        if journal is not None:
            journal.close()
        self.drain()

    def remove(self) -> None:
        """Remove the run directory, or only the files of this rank if other ranks have files there; earlier attempts stay."""
        if self.attempt > 1:
            return
        if self.rank is not None:
            for path in self.directory.glob(f"*.rank-{self.rank:04d}.*"):  # not `run.json`: the whole run has it, from the first rank
                path.unlink(missing_ok=True)
        others = (path for path in self.directory.glob("*.rank-*") if not path.name.startswith("end."))  # the note of a discarded run
        if self.rank is None or not any(others):
            shutil.rmtree(self.directory, ignore_errors=True)

    def move_to(self, directory: Path) -> None:
        """Rename the run directory; the journal stays open, and a new sealer takes the next one.

        Raises:
            StorageError: it cannot be renamed.
        """
        self.drain()
        try:
            self.directory.rename(directory)
        except OSError as error:
            raise StorageError(f'cannot rename "{self.directory}" to "{directory}": {error.strerror}') from error
        self.owned.move_to(directory)
        self.directory, self.sealer = directory, SealerProcess(directory, self.owned)
        if self.journal is not None:
            self.journal.move_to(directory)

    def poll(self) -> int:
        """Note what was sealed meanwhile, and return the number of journals that are not sealed yet; never waits."""
        self.sealed += self.sealer.poll()
        return self.sealer.waiting

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every epoch is sealed.

        Args:
            timeout: seconds to wait at most; the sealer then continues in the background.
        """
        self.sealed += self.sealer.drain(timeout)

    @property
    def seal_failures(self) -> list[SealFailure]:
        """The journals that could not be sealed."""
        return self.sealer.failures

    def let_go(self) -> None:
        """Forget the open journal, which belongs to another process."""
        self.journal = None

    def release(self) -> None:
        """Release the directory; while the sealer still works, the sealer keeps it."""
        self.owned.release(to_sealer=self.sealer.at_work)

    def _create(self, stem: Stem) -> Journal:
        self.owned.require()
        self._steps = 0
        head = {**self.head, "epoch": stem.epoch, "attempt": stem.attempt, "global_step_start": self._starts}
        if stem.segment:
            head["segment"] = stem.segment
        if self._first_step:
            head["first_step"] = self._first_step
        self.journal = Journal.create(
            self.directory / f"{stem}.journal",
            head,
            durability=self.durability,
            buffer_bytes=min(self.buffer_bytes or GATHER_BYTES, GATHER_BYTES),
            spare=self.directory / stem.spare,
        )
        self._stem = stem  # not earlier: if it cannot be created, its number stays free
        return self.journal
