"""Putting the directory of a run in order for another start of it.

`python -m probes.run_directory.resume RUN_DIR [RANK]` prints what the run came to, as JSON.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from probes.digest import canonical
from probes.errors import ProbesError, StorageError
from probes.run_directory.file_name import Stem
from probes.run_directory.listing import Directory
from probes.run_directory.past import Past, starts
from probes.run_directory.recover import DAMAGE, settle


def look(directory: Path, rank: int | None = None) -> Past:
    """What a run came to before this start; what was left unsealed is sealed first.

    Raises:
        StorageError: something in it is damaged.
        FileRefused: the ledger, or a sealed file, is not what it should be.
    """

    def ours(stem: Stem) -> bool:
        return stem.rank == rank

    recovery = settle(directory, ours)
    if recovery.damaged:
        lines = [f"{one.file}: {one.message}" for one in recovery.findings if one.action in DAMAGE]
        raise StorageError(f"{'; '.join(lines)}; `probes recover {directory}` says more")
    files = Directory(directory)
    mine = [found for found in files.current if found.rank == (rank or 0)]
    steps: dict[int, dict[str, int]] = {}
    for found in mine:  # of segments, the last tells the steps of all
        steps[found.epoch] = dict((files.file(found.name).document("closing") or {}).get("steps") or {})
    states = {one.epoch: one.state for one in files.attempts if one.current and one.rank == (rank or 0)}
    open_epochs = [epoch for epoch, state in states.items() if state != "complete"]
    next_epoch = min(open_epochs, default=max(states, default=-1) + 1)
    sealed = tuple(one.file for one in recovery.findings if one.action == "sealed")
    return Past(starts(directory, rank) + 1, next_epoch, steps, sealed)


def main(words: list[str]) -> None:
    """Answer the training process."""
    try:
        past = look(Path(words[0]), int(words[1]) if words[1:] else None)
        answer: dict[str, Any] = {**asdict(past), "steps": {str(epoch): counts for epoch, counts in past.steps.items()}}
    except ProbesError as error:
        answer = {"error": str(error)}
    sys.stdout.buffer.write(canonical(answer) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
