"""The files of a run: a journal for the epoch that is open, a sealer for those that are over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probes.store.journal import Journal
from probes.store.sealer import Sealer

GATHER_BYTES = 1 << 20  # gathering more in memory than this does not make commits cheaper


class Recording:
    """Writes epochs into a run directory.

    Args:
        directory: the run directory; it exists and is ours.
        head: what every journal's HEAD says: run id, manifest, spec.
        durability: `process` or `power`.
        buffer_bytes: most bytes that wait in memory.
        options: what the sealer is told with every journal, such as the compression.
    """

    def __init__(self, directory: Path, head: dict[str, Any], durability: str, buffer_bytes: int | None, options: dict[str, Any]) -> None:
        self.directory = directory
        self.head = head
        self.durability = durability
        self.buffer_bytes = buffer_bytes
        self.options = options
        self.sealer = Sealer(directory)
        self.journal: Journal | None = None
        self.sealed: list[Any] = []

    def open(self, epoch: int, starts: dict[str, int], attempt: int = 1) -> Journal:
        """Begin the journal of an epoch.

        Args:
            epoch: its number.
            starts: steps of every phase in earlier epochs.
            attempt: 1, or more where the epoch was begun before.
        """
        suffix = f".a{attempt}" if attempt > 1 else ""
        path = self.directory / f"epoch-{epoch:04d}{suffix}.journal"
        head = {**self.head, "epoch": epoch, "attempt": attempt, "global_step_start": starts}
        spare = self.directory / "spare.journal"
        self.journal = Journal.create(
            path,
            head,
            durability=self.durability,
            buffer_bytes=min(self.buffer_bytes or GATHER_BYTES, GATHER_BYTES),
            spare=spare if spare.exists() else None,
        )
        return self.journal

    def close(self, complete: bool, reason: str, closing: dict[str, Any]) -> None:
        """End the epoch's journal and hand it to the sealer."""
        journal, self.journal = self.journal, None
        if journal is None:
            return
        journal.end(complete, reason, closing)
        self.sealer.submit(journal.path, self.options)
        self.sealed += self.sealer.poll()

    def drain(self) -> None:
        """Wait until every epoch is sealed."""
        self.sealed += self.sealer.drain()
