"""The note that each rank of a launch leaves at its end; the last rank reads all of them.

A rank may end before the others, because its program has fewer epochs or calls no model. Its note stays, and states the head of
its ledger, so that readers know a rank that ended by itself from one whose files were lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from probes.digest import canonical
from probes.errors import FileRefused, StorageError
from probes.plain_file import plain_object, read_plain
from probes.run_directory.launch.launch_file import LaunchRecord
from probes.run_directory.ledger_lines import LedgerLine, read_ledger
from probes.run_directory.publish import write_whole

_NAME = re.compile(r"end(?:\.a([1-9][0-9]{0,9}))?\.rank-([0-9]{4,10})\.json")

Ended = Mapping[tuple[int, int], int]
"""The last epoch of a rank that ended by itself, by (attempt, rank); -1 if it has no file of that attempt."""


def end_name(attempt: int, rank: int) -> str:
    """The name of the note of a rank: `end.rank-0001.json`, then `end.a2.rank-0001.json`."""
    return f"end{f'.a{attempt}' if attempt > 1 else ''}.rank-{rank:04d}.json"


def leave(directory: Path, launch: LaunchRecord, rank: int, note: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Leave the note of a rank whose files are sealed; the last one takes the notes of all.

    Args:
        directory: the run directory.
        launch: the start that the rank is of.
        rank: its number.
        note: plain data.

    Returns:
        The notes by rank for exactly one rank, which is the last or one of the last; None for all others.
    """
    paths = [directory / end_name(launch.attempt, number) for number in range(launch.world)]
    with suppress(OSError, StorageError):  # the disk fails, which the rank has reported already
        write_whole(paths[rank], canonical({**note, **_end_of(directory, launch.attempt, rank)}) + b"\n")
        there = {path.name for path in directory.glob("end*.json")}
        if not there.issuperset(path.name for path in paths):
            return None
        notes = [plain_object(read_plain(path)) for path in paths]
        last = max(int(one["last"]) for one in notes)
        first, *others = [path for path, one in zip(paths, notes, strict=True) if one["last"] == last]
        first.unlink()  # of two ranks that find all notes, one can remove the first
        for path in others:
            path.unlink(missing_ok=True)
        return notes
    return None


def _end_of(directory: Path, attempt: int, rank: int) -> dict[str, Any]:
    """The head of a rank's ledger, empty if it has no line, and the last epoch of an attempt in it, or -1."""
    path = directory / f"ledger.rank-{rank:04d}.jsonl"
    found = read_ledger(path) if path.exists() else None
    last = max((one.epoch for one in found.entries if one.attempt == attempt), default=-1) if found else -1
    return {"head": found.heads[-1] if found and found.heads else "", "last": last}


def ended_ranks(directory: Path, entries: Iterable[LedgerLine]) -> dict[tuple[int, int], int]:
    """The ranks whose note agrees with their ledger, see `Ended`.

    Args:
        directory: the run directory.
        entries: the lines of all ledgers, those of each in their order.
    """
    lines: dict[int, list[LedgerLine]] = {}
    for one in entries:
        lines.setdefault(one.rank, []).append(one)
    return {(attempt, rank): last for attempt, rank, last in _stated(directory, lines)}


def _stated(directory: Path, lines: Mapping[int, Sequence[LedgerLine]]) -> Iterator[tuple[int, int, int]]:
    for path in sorted(directory.glob("end*.json")):
        found = _NAME.fullmatch(path.name)
        attempt, rank = (int(found[1] or 1), int(found[2])) if found else (0, 0)
        if found and end_name(attempt, rank) == path.name:
            before = [one for one in lines.get(rank, ()) if one.attempt <= attempt]
            with suppress(ValueError, FileRefused, OSError):
                if plain_object(read_plain(path)).get("head") == (before[-1].digest if before else ""):
                    yield attempt, rank, max((one.epoch for one in before if one.attempt == attempt), default=-1)
