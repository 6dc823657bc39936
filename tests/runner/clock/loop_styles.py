"""Loops in the styles that people write, each as a function that drives a clock and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from probes.runner.clock.answers import Answers, EpochEnded, EpochOpened, SeveralUpdates, StepEnded, StepPaused, StepResumed
from probes.runner.clock.run_clock import RunClock


class Program:
    """A program as events of the clock; it records the answers of the clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = RunClock(**{"automatic": True, **options})
        self.lines: list[str] = []
        self.places: list[tuple[int, str, int, int]] = []
        self._keys = count(1)

    def hear(self, answers: Answers) -> None:
        for one in answers:
            if isinstance(one, EpochOpened):
                self.lines.append(f"epoch {one.epoch}")
            elif isinstance(one, EpochEnded):
                self.lines.append(f"end {one.epoch}" + ("" if one.complete else f" {one.reason}"))
            elif isinstance(one, StepEnded):
                ids = f" {list(one.ids)}" if one.ids else ""
                self.lines.append(f"{one.phase} {one.step}" + ("" if one.keep else " dropped") + ids)
            elif isinstance(one, SeveralUpdates):
                self.lines.append("several updates")
            elif isinstance(one, StepPaused | StepResumed):
                self.lines.append(f"{type(one).__name__[4:].lower()} {one.phase} {one.step}")

    def call(self, phase: str = "train", *, raised: bool = False, thread: int = 0) -> None:
        self.enter(phase, thread)
        self.leave(thread, raised=raised)

    def enter(self, phase: str = "train", thread: int = 0) -> None:
        self.hear(self.clock.call_enters(phase, thread))
        position = self.clock.position(thread)
        if position is not None:
            self.places.append(tuple(position))

    def leave(self, thread: int = 0, *, raised: bool = False) -> None:
        self.hear(self.clock.call_leaves(thread, raised=raised))

    def update(self, *, skipped: bool = False) -> None:
        self.hear(self.clock.optimizer_stepped(skipped=skipped))

    def batches(self, loader: object, number: int, phase: str = "train", *, sized: bool = True, endless: bool = False) -> Iterator[int]:
        """A pass over a loader; it is left where the generator is closed before its end."""
        key = next(self._keys)
        self.hear(self.clock.pass_begins(key, loader, endless=endless))
        try:
            for index in range(number):
                self.hear(self.clock.batch_pulled(key, phase, last=sized and index == number - 1))
                yield index
            self.hear(self.clock.pass_exhausted(key))
        finally:
            self.hear(self.clock.pass_deleted(key))

    def train(self) -> None:
        """The work on one batch."""
        self.call()
        self.update()

    def end(self, error: str = "") -> list[str]:
        self.hear(self.clock.epoch_ends(complete=not error, reason=error))
        return self.lines

    # The loop's own words

    def items(self, number: int, *, sized: bool = True, left_at: int | None = None, raised: bool = False) -> Iterator[int]:
        """`run.steps` over so many batches."""
        loop, key = object(), object()
        self.clock.loop_begins(loop)
        for index in range(number):
            before, key = key, object()
            self.hear(self.clock.item_begins(key, loop=loop, after=before))
            self.clock.loop_gives(loop, last=sized and index == number - 1)
            yield index
            if left_at == index:
                self.hear(self.clock.item_ends(key, keep=not raised))
                if raised:
                    self.clock.loop_raised("exception")
                return
        self.hear(self.clock.item_ends(key))
        self.clock.loop_ends(loop)

    @property
    def steps(self) -> list[str]:
        """What was committed or dropped, in order."""
        return [line for line in self.lines if line.split()[0] not in ("epoch", "end", "paused", "resumed", "several")]

    @property
    def epochs(self) -> list[str]:
        """The ends of epochs."""
        return [line for line in self.lines if line.startswith("end")]

    def table(self, phase: str = "train") -> list[list[int]]:
        """The microsteps of each step of each epoch."""
        found: dict[int, dict[int, int]] = {}
        for epoch, where, step, microstep in self.places:
            if where == phase:
                found.setdefault(epoch, {})[step] = microstep + 1
        return [list(found.get(epoch, {}).values()) for epoch in range(max(found, default=-1) + 1)]
