"""What sealing a journal comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sealed:
    """A file that is sealed and entered in the ledger.

    Attributes:
        journal: name of the journal it was built of.
        file: name of the file, in the run directory.
        epoch: number of the epoch.
        attempt: attempt at the epoch, from 1.
        rank: rank of the process.
        segment: number of the segment; None where the epoch is one file.
        complete: whether the epoch came to its end.
        reason: why not.
        captures: how many captures it holds.
        bytes: its size.
        file_blake3: BLAKE3 of its bytes.
        captures_root: digest of everything captured.
        epoch_root: digest of that together with what it came from.
        head: hash of its line in the ledger, when it was written.
        seconds: how long it took.
        repeated: whether it had been sealed before, and only the journal was left to be removed.
    """

    journal: str
    file: str
    epoch: int
    attempt: int
    rank: int
    segment: int | None
    complete: bool
    reason: str
    captures: int
    bytes: int
    file_blake3: str
    captures_root: str
    epoch_root: str
    head: str
    seconds: float
    repeated: bool
