"""Find out what earlier starts of a run have written, so that a new start continues it.

The training process starts a child for it, `python -m probes.run_directory.resume RUN_DIR [RANK]`, because it never opens an
HDF5 file itself. The child seals the journals that are left and prints its answer as JSON.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probes.errors import ProbesError, StorageError
from probes.processes.subprocess_command import answer_line, command, last_answer
from probes.run_directory.file_name import Stem, attempt_of_manifest, manifest_files
from probes.run_directory.launch.launch_file import launches
from probes.run_directory.owner.ownership import Ownership

if TYPE_CHECKING:
    from probes.run_directory.attempts import ListedFile


@dataclass(frozen=True)
class PreviousAttempts:
    """The results of the earlier starts of a run.

    Attributes:
        attempt: number of this start, which its files carry; 1 for the first.
        next_epoch: the first epoch that is not complete after the last complete one.
            An earlier one stays incomplete, such as one that was continued in the middle.
        steps: steps by phase of every earlier epoch.
        captured: the probes that captured something.
        sealed: files that were sealed only now.
    """

    attempt: int = 1
    next_epoch: int = 0
    steps: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    captured: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()


def last_attempt(directory: Path) -> int:
    """The number of the last start of a run, of any rank; 0 if there was none."""
    return max([0, *launches(directory), *(attempt_of_manifest(path.name) for path in manifest_files(directory))])


def previous_attempts(owned: Ownership) -> PreviousAttempts:
    """Seal the journals in a directory that this process owns, and read its state, in a child that owns it too.

    Args:
        owned: the directory with all ranks, or the part of one rank; the files of other ranks are then not touched.

    Raises:
        StorageError: a file in it is damaged.
    """
    directory = owned.directory
    words = [str(directory), *([] if owned.rank is None else [str(owned.rank)])]
    try:
        child = command("probes.run_directory.resume", *words)
    except FileNotFoundError:  # no interpreter, so that no child: this process reads the files, which imports h5py
        return read_attempts(directory, owned.rank)
    done = subprocess.run(child, stdin=subprocess.DEVNULL, capture_output=True, check=False, pass_fds=owned.shared)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise StorageError(f'cannot read the run directory "{directory}": {"".join(last) or f"exit status {done.returncode}"}')
    answer: dict[str, Any] = last_answer(done.stdout) or {"error": "the process that read it gave no answer"}
    if "error" in answer:
        raise StorageError(f'cannot resume the run "{directory}": {answer["error"]}')
    steps = {int(epoch): dict(counts) for epoch, counts in answer["steps"].items()}
    return PreviousAttempts(int(answer["attempt"]), int(answer["next_epoch"]), steps, tuple(answer["captured"]), tuple(answer["sealed"]))


def read_attempts(directory: Path, rank: int | None = None) -> PreviousAttempts:
    """Seal the journals, and read the results of all earlier starts; this part runs in the child.

    Args:
        directory: the run directory.
        rank: whose journals are sealed, by default those of all; its steps count, and if it has no file of an epoch, those of the
            first rank that has.

    Raises:
        StorageError: a file in the directory is damaged.
        FileRefused: the ledger, or a sealed file, is not what it should be.
    """
    # Both import h5py, which the training process must not import.
    from probes.run_directory.listing import Directory
    from probes.run_directory.recover import DAMAGE, seal_leftovers

    def is_ours(stem: Stem) -> bool:
        return rank is None or stem.rank == rank

    recovery = seal_leftovers(directory, is_ours)
    if recovery.damaged:
        lines = [f"{one.file}: {one.message}" for one in recovery.findings if one.action in DAMAGE]
        raise StorageError(f"{'; '.join(lines)}; `probes recover {shlex.quote(str(directory))}` shows details")
    files = Directory(directory)
    counted: dict[int, ListedFile] = {}
    for found in files.current:  # by rank and segment; the last segment has the step counts of all
        before = counted.get(found.epoch)
        if before is None or found.rank in (before.rank, rank or 0):
            counted[found.epoch] = found
    steps = {epoch: dict((files.file(found.name).document("closing") or {}).get("steps") or {}) for epoch, found in counted.items()}
    states = files.states(lambda _, of: rank is None or of == rank)
    after = max((epoch for epoch, state in states.items() if state == "complete"), default=-1) + 1
    next_epoch = min((epoch for epoch in states if epoch >= after), default=after)
    own = (found for found in files.current if found.rank == counted[found.epoch].rank)
    captured = tuple(sorted({one.key.probe for found in own for one in files.outlines(found)}))
    sealed = tuple(one.file for one in recovery.findings if one.action == "sealed")
    return PreviousAttempts(last_attempt(directory) + 1, next_epoch, steps, captured, sealed)


def main(words: list[str]) -> None:
    """Answer the training process."""
    try:
        found = read_attempts(Path(words[0]), int(words[1]) if words[1:] else None)
        answer: dict[str, Any] = {**asdict(found), "steps": {str(epoch): counts for epoch, counts in found.steps.items()}}
    except ProbesError as error:
        answer = {"error": str(error)}
    sys.stdout.buffer.write(answer_line(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
