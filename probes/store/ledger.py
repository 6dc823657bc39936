"""The ledger of a run: one line per sealed file, each naming the hash of the line before."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probes.digest import blake3_hex, canonical
from probes.errors import FileRefused, StorageError
from probes.store.raw_file import sync_directory

FORMAT = "ledger.v1"
FIRST = "0" * 64


class Entry(BaseModel):
    """One line: a file that was sealed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: str = Field(default=FORMAT, pattern="^ledger[.]v1$", description="Name and version of this format.")
    index: int = Field(description="Number of the line, from 0.")
    previous: str = Field(description="BLAKE3 of the line before, without its end; zeros for the first.")
    file: str = Field(description="Name of the sealed file.")
    bytes: int = Field(description="Its size.")
    file_blake3: str = Field(description="BLAKE3 of its bytes.")
    epoch: int = Field(description="Number of the epoch.")
    attempt: int = Field(description="Attempt at the epoch, from 1.")
    rank: int = Field(description="Rank of the process.")
    segment: int | None = Field(description="Number of the segment, from 1; null where the epoch is one file.")
    complete: bool = Field(description="Whether the epoch, or the segment, came to its end.")
    reason: str = Field(description="Why not.")
    captures: int = Field(description="How many captures the file holds.")
    captures_root: str = Field(description="Digest of everything captured.")
    epoch_root: str = Field(description="Digest of that together with what it came from.")
    supersedes: str | None = Field(description="The file of an earlier attempt that this one takes the place of, or null.")

    @property
    def digest(self) -> str:
        """What the next line names as `previous`; for the last line it is the head of the ledger."""
        return blake3_hex(line(self))


def line(entry: Entry) -> bytes:
    """An entry as it stands in the ledger, without the end of the line."""
    return canonical(entry.model_dump())


class Ledger:
    """The lines of one ledger file, kept in memory, so that an append does not read the chain again.

    Attributes:
        path: the file; it need not exist.
        entries: its lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries, self._end = _read(path)

    @property
    def head(self) -> str:
        """BLAKE3 of the last line, or zeros: whoever keeps it can tell later that lines were cut off or changed."""
        return self.entries[-1].digest if self.entries else FIRST

    def refresh(self) -> None:
        """Read the file again where another process has written to it."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._end:
            self.entries, self._end = _read(self.path)

    def entry(self, file: str) -> Entry | None:
        """The line of a file."""
        return next((entry for entry in reversed(self.entries) if entry.file == file), None)

    def append(self, facts: Mapping[str, Any]) -> Entry:
        """Add a line and wait until it is on the device; a piece of a line left by a kill is cut off first.

        Args:
            facts: the fields of `Entry` but `format`, `index`, `previous` and `supersedes`.

        Raises:
            StorageError: the file cannot be written.
        """
        self.refresh()
        superseded = self._superseded(facts)
        entry = Entry(index=len(self.entries), previous=self.head, supersedes=superseded, **facts)
        text = line(entry) + b"\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
            try:
                os.ftruncate(descriptor, self._end)
                written = os.pwrite(descriptor, text, self._end)
                if written < len(text):
                    os.ftruncate(descriptor, self._end)
                    raise StorageError(f'"{self.path}" takes no more lines: the disk is full')
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not self._end:
                sync_directory(self.path.parent)  # the journal goes next, and only the ledger's name says that it may
        except OSError as error:
            raise StorageError(f'"{self.path}" cannot be written: {error.strerror or error}') from error
        self._end += len(text)
        self.entries.append(entry)
        return entry

    def _superseded(self, facts: Mapping[str, Any]) -> str | None:
        """The current file of the same epoch, unless it is complete and the new one is not."""
        place = (facts["epoch"], facts["rank"], facts["segment"])
        before = current(self.entries).get(place)
        if before is None or before.attempt >= facts["attempt"] or (before.complete and not facts["complete"]):
            return None
        return before.file


def current(entries: Iterable[Entry]) -> dict[tuple[int, int, int | None], Entry]:
    """For each (epoch, rank, segment) the line that counts.

    It is the highest attempt, but an incomplete one never takes the place of a complete one.
    """
    chosen: dict[tuple[int, int, int | None], Entry] = {}
    for entry in entries:
        place = (entry.epoch, entry.rank, entry.segment)
        before = chosen.get(place)
        if before is None or (entry.complete, entry.attempt) >= (before.complete, before.attempt):
            chosen[place] = entry
    return chosen


def check(entries: list[Entry], anchor: str | None = None) -> None:
    """Check the chain, and that it still holds the line an anchor was taken from.

    Args:
        entries: the lines.
        anchor: a head, or a leading part of at least 8 digits, that was noted earlier; None checks the chain only.

    Raises:
        FileRefused: `ledger-chain` or `ledger-anchor`.
    """
    previous = FIRST
    heads = []
    for number, entry in enumerate(entries):
        if entry.index != number or entry.previous != previous:
            raise FileRefused("ledger-chain", f'line {number + 1} ("{entry.file}") does not follow the line before it')
        previous = entry.digest
        heads.append(previous)
    if anchor is not None and not (len(anchor) >= 8 and any(head.startswith(anchor.lower()) for head in heads)):
        raise FileRefused("ledger-anchor", f'no line of the ledger has the hash "{anchor}": what it was taken from was cut off or changed')


def _read(path: Path) -> tuple[list[Entry], int]:
    """The lines of a ledger, and where the last whole one ends.

    Raises:
        FileRefused: `ledger-line`: a whole line is not an entry in canonical form.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StorageError(f'"{path}" cannot be read: {error.strerror}') from error
    end = content.rfind(b"\n") + 1
    return [_entry(path, number, text) for number, text in enumerate(content[:end].split(b"\n")[:-1], 1)], end


def _entry(path: Path, number: int, text: bytes) -> Entry:
    try:
        entry = Entry.model_validate(json.loads(text))
    except (ValueError, ValidationError, RecursionError):
        raise FileRefused("ledger-line", f'line {number} of "{path}" is not an entry of a ledger') from None
    if line(entry) != text:
        raise FileRefused("ledger-line", f'line {number} of "{path}" is not written the way a ledger is')
    return entry
