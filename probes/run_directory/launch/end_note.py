"""The note that each rank of a launch leaves at its end; the last rank reads all of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from probes.digest import canonical
from probes.errors import StorageError
from probes.plain_file import plain_object, read_plain
from probes.run_directory.launch.launch_file import LaunchRecord, write_whole


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
        write_whole(paths[rank], canonical(dict(note)) + b"\n")
        there = {path.name for path in directory.glob("end*.json")}
        if not there.issuperset(path.name for path in paths):
            return None
        notes = [plain_object(read_plain(path)) for path in paths]
        paths[0].unlink()  # of two ranks that find all notes, one can remove the first
        for path in paths[1:]:
            path.unlink(missing_ok=True)
        return notes
    return None
