"""Loss of power: every call of a whole run is logged, and replayed up to any point with parts of what was not synced missing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tests.torture.calls import Call, read
from tests.torture.checking import Acks, Count, examine
from tests.torture.disk import Disk
from tests.torture.report import SMALL, Effort, Row
from tests.torture.shim import NOTE, Calls, Fault

REPLAYS = 5000
DURABILITIES = ("process", "power")
STEPS, EVERY = 6, 3
BOOT = "before the power loss"


Given = TypeVar("Given")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Task:
    """A share of the replays, for one process.

    Attributes:
        log: the calls of the run.
        root: the directory it wrote to.
        durability: what the run promised.
        seed: what chance is drawn from.
        replays: how many.
        folder: where to write.
    """

    log: Path
    root: Path
    durability: str
    seed: str
    replays: int
    folder: Path


def rows(effort: Effort) -> Iterator[Row]:
    """One row for each durability."""
    for durability in DURABILITIES:
        with effort.row(f"power loss under durability: {durability}, replayed") as row:
            log, root = _record(effort, durability)
            total, parts = effort.count(REPLAYS, 10), 8 if effort.share > SMALL else 1
            tasks = [
                Task(log, root, durability, f"{effort.seed} {durability} {part}", -(-total // parts), effort.folder)
                for part in range(parts)
            ]
            for count in spread(replay, tasks):
                row.count.add(count)
            row.trials = sum(task.replays for task in tasks)
            calls = sum(call.kind != NOTE for call in read(log))
            row.note = f"{calls} calls, unsynced pieces of 512 and 4096 bytes and names kept, lost and reordered"
        yield row


def spread(work: Callable[[Given], Found], tasks: list[Given]) -> Iterator[Found]:
    """Work on tasks in processes, or in this one where there is but one."""
    if len(tasks) == 1:
        yield work(tasks[0])
        return
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, tasks)


def _record(effort: Effort, durability: str) -> tuple[Path, Path]:
    """The log of a run that came to its end, and where that was."""
    log = effort.folder / f"{durability}.log"
    log.unlink(missing_ok=True)

    def order(place: Path) -> dict[str, Any]:
        fault = Fault().text(place / "run", log)
        short = {"steps": STEPS, "every": EVERY, "spec": {"durability": durability}, "boot": BOOT}
        return {"fault": fault, "sealer_fault": fault, **short}

    (answer,) = effort.nurseries.each([order])
    return log, Path(answer["order"]["out"])


def replay(task: Task) -> Count:
    """Let the power go at random points, and look at what is left after each."""
    chance = Random(task.seed)
    calls = list(read(task.log))
    first = next(index for index, call in enumerate(calls) if call.kind == Calls.CREATE and call.path.endswith(".journal"))
    stops = sorted(chance.randint(first, len(calls)) for _ in range(task.replays))
    disk, acks, total, done = Disk(task.root), Promises(task.durability), Count(), 0
    for stop in stops:
        for call in calls[done:stop]:
            disk.replay(call)
            acks.hear(call)
        done = max(done, stop)
        place = Path(tempfile.mkdtemp(dir=task.folder))
        disk.after_power_loss(chance, place)
        found = examine(place, acks.promised, EVERY)
        found.problems = [f"after call {stop} ({task.seed}): {problem}" for problem in found.problems if not _may(problem, task.durability)]
        total.add(found)
        shutil.rmtree(place)
    return total


def _may(problem: str, durability: str) -> bool:
    """Whether a problem is one that `process` makes no promise about: a journal of which the first bytes are gone."""
    return durability == "process" and ".journal" in problem and ("not-a-journal" in problem or "verify: unsealed" in problem)


class Promises:
    """The steps that must be there after a loss of power: under `power` all that were acknowledged, else those sealed."""

    def __init__(self, durability: str) -> None:
        self._power = durability == "power"
        self._acknowledged: Acks = []
        self._sealed = 0

    def hear(self, call: Call) -> None:
        """Note an acknowledgement, or that a line of the ledger is on the device."""
        if call.kind == NOTE:
            epoch, step = call.path.split()
            self._acknowledged.append((int(epoch), int(step)))
        elif call.kind == Calls.SYNC and call.path.endswith("ledger.jsonl"):
            self._sealed += 1

    @property
    def promised(self) -> Acks:
        """What must be there."""
        return [place for place in self._acknowledged if self._power or place[0] < self._sealed]
