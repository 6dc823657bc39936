"""The ledger of a run: one line per sealed file, each naming the hash of the line before."""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.errors import StorageError
from probes.host import free_words
from probes.plain_file import open_above, sync_directory, write_rest
from probes.run_directory.ledger_lines import FIRST, LedgerLine, line, read_ledger, require_sound, series_rows

LONGEST_LINE, LARGEST = 4 << 20, 64 << 20  # bytes of a line and of a ledger with series; a reader takes a ledger of 256 MiB


@dataclass(frozen=True)
class SealedFileInfo:
    """A sealed file that has a line in the ledger.

    Attributes:
        journal: name of the journal it was built of.
        file: name of the file, in the run directory.
        epoch: number of the epoch.
        attempt: attempt at the epoch, from 1.
        rank: rank of the process.
        segment: number of the segment; None if the epoch is one file.
        complete: whether the epoch is complete.
        reason: why not.
        captures: how many captures it holds.
        bytes: its size.
        file_blake3: BLAKE3 of its bytes.
        captures_root: digest of everything captured.
        epoch_root: digest of the captures root together with spec, model, code and environment.
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


class Ledger:
    """The lines of one ledger file, kept in memory, so that an append does not read the chain again.

    Attributes:
        path: the file; it need not exist.
        entries: its lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[LedgerLine] = []
        self._files: dict[str, LedgerLine] = {}
        self._earliest: dict[tuple[int, int], int] = {}
        self._load()

    def _load(self) -> None:
        """Read the file."""
        self.entries, self._end = _read(self.path)
        self._files.clear()
        self._earliest.clear()
        for entry in self.entries:
            self._record(entry)

    def _record(self, entry: LedgerLine) -> None:
        """Take a line into the indexes, so that an append needs no look at all lines."""
        self._files[entry.file] = entry
        place = entry.epoch, entry.rank
        self._earliest[place] = min(entry.attempt, self._earliest.get(place, entry.attempt))

    @property
    def head(self) -> str:
        """BLAKE3 of the last line, or zeros; a kept copy reveals later whether lines were removed or changed."""
        return self.entries[-1].digest if self.entries else FIRST

    def refresh(self) -> None:
        """Read the file again if another process has written to it."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._end:
            self._load()

    def entry(self, file: str) -> LedgerLine | None:
        """The line of a file."""
        return self._files.get(file)

    def append(self, facts: Mapping[str, Any]) -> LedgerLine:
        """Add a line and wait until it is on the device; a piece of a line left by a kill is cut off first.

        Args:
            facts: the fields of `LedgerLine` but `format`, `index`, `previous` and `supersedes`; `series` as plain rows.

        Raises:
            StorageError: the file cannot be written.
        """
        try:
            descriptor = open_above(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                with suppress(OSError):  # no locks on this file system
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                self.refresh()
                entry = self._made(facts)
                text = line(entry) + b"\n"
                _write(descriptor, text, self._end)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not self._end:
                sync_directory(self.path.parent)  # The journal is removed next, and only the ledger allows that.
        except OSError as error:
            raise StorageError(f'"{self.path}" cannot be written: {error.strerror or error}; {free_words(self.path)}') from error
        self._end += len(text)
        self.entries.append(entry)
        self._record(entry)
        return entry

    def _made(self, facts: Mapping[str, Any]) -> LedgerLine:
        """The next line, without its series if they would make the line or the ledger too long."""
        own = {"index": len(self.entries), "previous": self.head, "supersedes": self._superseded(facts)}
        entry = LedgerLine.model_validate({**facts, **own, "series": self._series(facts.get("series"))})
        size = len(line(entry))
        return entry if size <= LONGEST_LINE and self._end + size <= LARGEST else entry.model_copy(update={"series": None})

    def _series(self, rows: list[dict[str, Any]] | None) -> list[dict[str, Any]] | int | None:
        """The rows, or the number of the line that lists the same rows if the last line has them too."""
        if rows is None or not self.entries:
            return rows
        last = self.entries[-1]
        before = series_rows(self.entries, last)
        if before is None or [row.model_dump() for row in before] != rows:
            return rows
        return last.series if isinstance(last.series, int) else last.index

    def _superseded(self, facts: Mapping[str, Any]) -> str | None:
        """The current file of the same place, unless its attempt is complete and the new file does not end one."""
        if self._earliest.get((facts["epoch"], facts["rank"]), facts["attempt"]) >= facts["attempt"]:
            return None
        before = current(self.entries).get((facts["epoch"], facts["rank"], facts["segment"]))
        if before is None or before.attempt >= facts["attempt"]:
            return None
        earlier = _of_attempt(self.entries, before)
        if max(earlier, key=_segment).complete:
            return before.file if facts["complete"] else None
        own = [entry for entry in self.entries if (entry.epoch, entry.rank, entry.attempt) == (before.epoch, before.rank, facts["attempt"])]
        held = sum(entry.captures for entry in own) + facts["captures"]
        return before.file if facts["complete"] or held >= sum(entry.captures for entry in earlier) else None


def current(entries: Iterable[LedgerLine], worlds: Mapping[int, int] | None = None) -> dict[tuple[int, int, int | None], LedgerLine]:
    """For each (epoch, rank, segment) the line that counts.

    It is that of the highest attempt at the epoch, but an incomplete one never takes the place of a complete one, nor of one that
    holds more captures. An attempt in segments is complete where its last segment is.

    Args:
        entries: the lines.
        worlds: the number of processes by attempt, if the ranks of a launch count together; an attempt is then complete where
            that of every rank is. Attempts without a line do not count: no file has a digest of their launch file.
    """
    lines = list(entries)
    there = {entry.attempt for entry in lines}
    worlds = {attempt: world for attempt, world in (worlds or {}).items() if attempt in there}
    tries: dict[tuple[int, int], dict[int, list[LedgerLine]]] = defaultdict(lambda: defaultdict(list))
    for entry in lines:
        tries[entry.epoch, 0 if worlds else entry.rank][entry.attempt].append(entry)
    chosen: dict[tuple[int, int, int | None], LedgerLine] = {}
    for attempts in tries.values():
        best = max(attempts, key=lambda attempt: _weight(attempts[attempt], worlds.get(attempt, 1)))
        chosen |= {(entry.epoch, entry.rank, entry.segment): entry for entry in attempts[best]}
    return chosen


def is_whole(entries: Iterable[LedgerLine], one: LedgerLine) -> bool:
    """Whether the attempt of a line is complete."""
    return max(_of_attempt(entries, one), key=_segment).complete


def _of_attempt(entries: Iterable[LedgerLine], like: LedgerLine) -> list[LedgerLine]:
    """The lines of one attempt at an epoch."""
    return [entry for entry in entries if (entry.epoch, entry.rank, entry.attempt) == (like.epoch, like.rank, like.attempt)]


def _weight(entries: list[LedgerLine], world: int) -> tuple[bool, int, int]:
    """The order of attempts at an epoch; of complete ones the last counts, whatever it holds."""
    last: dict[int, LedgerLine] = {}
    for entry in sorted(entries, key=_segment):
        last[entry.rank] = entry
    complete = len(last) >= world and all(entry.complete for entry in last.values())
    return complete, 0 if complete else sum(entry.captures for entry in entries), entries[0].attempt


def _segment(entry: LedgerLine) -> int:
    return entry.segment or 0


def _write(descriptor: int, text: bytes, end: int) -> None:
    """Write a whole line after the last one, or nothing, also if the system accepts it in parts."""
    os.ftruncate(descriptor, end)
    try:
        write_rest(lambda parts, offset: os.pwrite(descriptor, parts[0], offset), (text,), end, 0, len(text))
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


def _read(path: Path) -> tuple[list[LedgerLine], int]:
    """The lines of a ledger, and the end of the last whole one.

    Raises:
        FileRefused: a whole line is not an entry in canonical form, does not follow the one before, or is of another ledger.
    """
    if not path.exists() and not path.is_symlink():
        return [], 0
    found = read_ledger(path)
    require_sound((found,), path.parent)
    return found.entries, found.end
