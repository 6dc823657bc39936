"""Comparing what a run kept with what was acknowledged and what is known to have been captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probes.errors import FileRefused, ProbesError, StorageError
from probes.reader.run import open as open_run
from tests.torture.training import EVERY, SERIES

Acks = list[tuple[int, int]]
AGAIN = 20


@dataclass
class Count:
    """What was found in one trial, or the sum of many.

    Attributes:
        acknowledged: captures whose commit had returned.
        lost: of these, how many were not found, once or twice (before and after `recover`).
        wrong: captures that were handed out with another value than the one captured.
        problems: sentences about anything else that must not happen.
    """

    acknowledged: int = 0
    lost: int = 0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Count) -> None:
        """Add the counts of another."""
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.wrong += other.wrong
        self.problems += other.problems


def acknowledged(path: Path) -> Acks:
    """The steps (epoch, step) that the training said were committed; a line that a kill has cut does not count."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [(int(epoch), int(step)) for epoch, step in (line.split() for line in lines)]


def check(directory: Path, acks: Iterable[tuple[int, int]], every: int = EVERY) -> Count:
    """Read a run, and compare every capture with its known value; where it is sealed meanwhile, once more."""
    promised = list(acks)
    for _ in range(AGAIN):
        try:
            return _check(directory, promised, every)
        except StorageError as error:
            if "open the run again" not in str(error):
                raise
    raise AssertionError(f"{directory} was sealed {AGAIN} times while it was read")


def _check(directory: Path, promised: Acks, every: int) -> Count:
    count = Count()
    try:
        run = open_run(directory)
        there = {(key.probe, key.target, key.leaf) for key in (one.key for one in run.series)}
    except (StorageError, FileRefused) as error:
        if "open the run again" in str(error):
            raise
        if promised:
            count.problems.append(f"cannot be opened: {error}")
        run, there = None, set()
    for name, (known, often) in SERIES.items():
        stride = every if often > 1 else 1
        wanted = {(epoch, step) for epoch, step in promised if step % stride == 0}
        found = _compare(run[name], known, count) if run is not None and name in there else set()
        count.acknowledged += len(wanted)
        count.lost += len(wanted - found)
        if wanted - found:
            files = ", ".join(sorted(path.name for path in directory.iterdir())) if directory.is_dir() else "no files"
            count.problems.append(f"{'/'.join(name)} lacks {sorted(wanted - found)[:5]} ...; there are {files}")
    return count


def _compare(series: Any, known: Callable[[int, int], np.ndarray[Any, Any]], count: Count) -> set[tuple[int, int]]:
    """The (epoch, step) of the captures of a series that hold what was captured."""
    found = set()
    for capture in series:
        place = (int(capture.clock.epoch), int(capture.clock.step))
        if np.array_equal(capture.value, known(*place)):
            found.add(place)
        else:
            count.wrong += 1
    return found


def examine(directory: Path, acks: Acks, every: int = EVERY) -> Count:
    """Compare a run before and after `recover`; afterwards it must be in order and verify."""
    count = check(directory, acks, every)
    count.add(recovered(directory))
    again = check(directory, acks, every)
    count.lost = max(count.lost, again.lost)
    count.wrong += again.wrong
    count.problems += [f"after recover: {problem}" for problem in again.problems]
    return count


def recovered(directory: Path) -> Count:
    """Put a run in order, and verify it."""
    from probes.proof.verify import verify
    from probes.run_directory.recover import DAMAGE, recover

    count = Count()
    if not directory.exists():
        return count
    try:
        recovery = recover(directory)
        count.problems += [f"recover: {one.file} {one.action}: {one.message}" for one in recovery.findings if one.action in DAMAGE]
        if any(directory.glob("ledger*.jsonl")):
            verdict = verify(directory)
            count.problems += [f"verify: {one.code} {one.file}: {one.message}" for one in verdict.findings if not one.note]
    except ProbesError as error:
        count.problems.append(f"{type(error).__name__}: {error}")
    return count
