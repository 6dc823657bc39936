"""The order in which the captures of a run were taken."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from probes.proof.comparison.difference import Divergence
from probes.proof.comparison.pairing import PlanOrder
from probes.run_directory.listing import Directory


class StepRange(NamedTuple):
    """Consecutive steps of one phase.

    Attributes:
        first: the first step.
        steps: how many steps.
        before: how many steps of any phase ended before the first one, in the same epoch.
    """

    first: int
    steps: int
    before: int


class ExecutionOrder:
    """The order in which captures of a run were taken: steps as they ended, and the captures of a step as they were taken.

    Files of release 0.1 do not have it. Then phases follow each other, `train` first, and within a step the plan's order holds.

    Args:
        run: the run.
        plan: the plan's order of its series.
    """

    def __init__(self, run: Directory, plan: PlanOrder) -> None:
        self._run, self._plan = run, plan
        self._ranges = cache(self._read)

    def place(self, one: Divergence) -> tuple[Any, ...]:
        """The sort key of captures of all series and ranks."""
        clock = one.clock
        before = self._before(clock.epoch, clock.rank, clock.phase, clock.step)
        step = (before, clock.phase != "train", clock.phase, clock.step)
        return clock.epoch, step, one.order, clock.microstep, self._plan.series(one.key), clock.call, clock.backward, clock.rank

    def _before(self, epoch: int, rank: int, phase: str, step: int) -> int:
        """The number of steps of an epoch that ended before a step; -1 if the files do not state it."""
        ranges = self._ranges(epoch, rank).get(phase, ())
        at = bisect_right(ranges, step, key=lambda one: one.first) - 1
        if at < 0 or step >= ranges[at].first + ranges[at].steps:
            return -1
        return ranges[at].before + step - ranges[at].first

    def _read(self, epoch: int, rank: int) -> dict[str, list[StepRange]]:
        """The steps of an epoch by phase, from its files."""
        entries = sorted(entry for entry in self._run.current if (entry.epoch, entry.rank) == (epoch, rank))
        return ranges(row for entry in entries for row in self._run.file(entry.name).document("order") or ())


def ranges(rows: Iterable[tuple[str, int, int]]) -> dict[str, list[StepRange]]:
    """The steps by phase.

    Args:
        rows: phase, first step and number of steps, in the order of execution.
    """
    found: dict[str, list[StepRange]] = {}
    before = 0
    for phase, first, count in rows:
        found.setdefault(phase, []).append(StepRange(first, count, before))
        before += count
    return {phase: sorted(of_phase) for phase, of_phase in found.items()}
