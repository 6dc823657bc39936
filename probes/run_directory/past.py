"""What earlier starts of a run have left in its directory, for a start that goes on with it.

The training process asks a child (`resume.py`), so that it never opens an HDF5 file itself.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes.errors import StorageError
from probes.run_directory.subprocess_command import command


@dataclass(frozen=True)
class Past:
    """What a run came to before this start.

    Attributes:
        attempt: number of this start, which its files carry; 1 for the first.
        next_epoch: the first epoch that did not come to its end.
        steps: steps by phase of every earlier epoch.
        sealed: files that were sealed only now.
    """

    attempt: int = 1
    next_epoch: int = 0
    steps: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    sealed: tuple[str, ...] = ()


def ask(directory: Path, rank: int | None) -> Past:
    """Put a directory in order that this process has claimed, and tell what is in it; done by a child.

    Args:
        directory: the run directory.
        rank: rank of this process, where the launch has several; the files of the others are left alone.

    Raises:
        StorageError: something in it is damaged.
    """
    words = [str(directory), *([] if rank is None else [str(rank)])]
    done = subprocess.run(command("probes.run_directory.resume", *words), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise StorageError(f"'{directory}' cannot be looked through: {''.join(last) or f'status {done.returncode}'}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise StorageError(f"'{directory}' cannot be resumed: {answer['error']}")
    steps = {int(epoch): dict(counts) for epoch, counts in answer["steps"].items()}
    return Past(int(answer["attempt"]), int(answer["next_epoch"]), steps, tuple(answer["sealed"]))


def manifest_name(attempt: int = 1, rank: int | None = None) -> str:
    """The name of the manifest of one start: `run.json`, then `run.a2.json`; of ranks but the first `run.rank-0001.json`."""
    again = f".a{attempt}" if attempt > 1 else ""
    return f"run{again}{f'.rank-{rank:04d}' if rank else ''}.json"


def starts(directory: Path, rank: int | None = None) -> int:
    """How often the run was started, by the manifests in its directory."""
    attempt = 0
    while (directory / manifest_name(attempt + 1, rank)).exists():
        attempt += 1
    return attempt
