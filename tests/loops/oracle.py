"""The clock, kept by hand: goes through a program's tree and says where each of its calls must be.

Written from the rules alone, and from no code of the package:

- The first outermost call, or step, opens epoch 0 where the loop opens none.
- The phase of a call is the one named last; without one `train` where the model is in train mode and gradients are on, else `eval`.
- An item (of `run.steps`, or `run.step`) is a step of the phase that is named when it begins, else of the phase of its first call.
  Its calls of that phase are microsteps. A call of another phase within it follows the rules for calls outside of items.
- Outside of items a training call opens a step, or goes on with the one that is open, until an optimizer has stepped. Any other call is
  a step. A step in which an optimizer has stepped is over when a phase is named, or a call of another phase comes.
- A step ends when the next one begins at the same place, or the phase, item or epoch around it ends.
- A step whose body raised is dropped, and keeps its number; with an item all is dropped that is open in it, with a named phase too.
- An epoch is not complete whose training batches were left, or that was left by an exception. Where the last thing in an epoch is an
  exception out of a phase or a loop, which the program caught, nothing tells whether more was meant to come: either is right.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.loops.programs import Aside, Call, Items, Learn, Named, OneStep, Program, Statement


@dataclass(eq=False)
class Step:
    """A step; `kept` is known when it is over."""

    phase: str
    depth: int
    item: bool = False
    epoch: int = -1
    index: int = -1
    global_index: int = -1
    microsteps: int = 0
    updated: bool = False
    kept: bool = True


@dataclass(frozen=True)
class Expected:
    """Where one call of the probed layer must be."""

    step: Step
    microstep: int

    @property
    def place(self) -> tuple[str, int, int, int, int]:
        """Phase, epoch, step, global step and microstep."""
        return (self.step.phase, self.step.epoch, self.step.index, self.step.global_index, self.microstep)


@dataclass
class Oracle:
    """Keeps the clock of one program.

    Attributes:
        calls: where each call of the probed layer must be, in order; None for one outside of any epoch.
        complete: whether each epoch must be complete; None where nothing tells.
    """

    calls: list[Expected | None] = field(default_factory=list)
    complete: dict[int, bool | None] = field(default_factory=dict)
    epoch: int | None = None
    depth: int = 0
    names: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    item: Step | None = None
    loose: list[Step] = field(default_factory=list)
    left: dict[str, bool] = field(default_factory=dict)
    caught: bool = False

    def of(self, program: Program) -> Oracle:
        """Go through a program."""
        for epoch, body in enumerate(program.bodies):
            last = epoch == len(program.bodies) - 1
            if program.opening:
                self._open(epoch)
            self._run(body)
            self._close(raised=last and program.leave == "raise")
        return self

    def _open(self, epoch: int) -> None:
        self.epoch = epoch
        self.counts.clear()
        self.left.clear()

    def _close(self, *, raised: bool = False) -> None:
        if self.epoch is None:
            return
        self._end(0, kept=not raised)
        left = self.left.get("train", False) if self.counts["train"] else any(self.left.values())
        self.complete[self.epoch] = False if left or raised else None if self.caught else True
        self.caught = False
        self.totals.update(self.counts)
        self.epoch = None

    def _run(self, body: tuple[Statement, ...]) -> None:
        for each in body:
            match each:
                case Call():
                    self._call(each)
                case Learn():
                    self._learn(each)
                case Named():
                    self._named(each)
                case Items():
                    self._items(each)
                case OneStep():
                    self._begin_item()
                    self._run(each.body)
                    self._end_item(kept=not each.raises)
                case Aside():
                    pass

    def _call(self, call: Call) -> None:
        if self.epoch is None:
            self._open(0)
        self.caught = False
        phase = self.names[-1] if self.names else "train" if call.mode == "train" else "eval"
        step = self._step(phase)
        if step.index < 0:
            self._number(step, phase)
        if call.part in ("whole", "fc"):
            self.calls.append(Expected(step, step.microsteps))
        step.microsteps += 1
        if step not in (*self.loose, self.item) and call.fails:
            step.kept = False

    def _step(self, phase: str) -> Step:
        if self.item is not None and self.item.phase in ("", phase):
            return self.item
        self._leave_updated()
        if phase != "train":
            return Step(phase, self.depth)
        if not self.loose:
            self.loose.append(Step("train", self.depth))
        return self.loose[-1]

    def _leave_updated(self) -> None:
        if self.loose and self.loose[-1].updated:
            self.loose.pop()

    def _number(self, step: Step, phase: str) -> None:
        step.phase, step.epoch = phase, self.epoch or 0
        step.index, step.global_index = self.counts[phase], self.counts[phase] + self.totals[phase]
        self.counts[phase] += 1

    def _learn(self, learn: Learn) -> None:
        if learn.step:
            for step in self.loose:
                step.updated = True

    def _named(self, named: Named) -> None:
        self._leave_updated()
        self.names.append(named.name)
        self.depth += 1
        self._run(named.body)
        self._end(self.depth, kept=not named.raises)
        self.caught = self.caught or named.raises
        self.depth -= 1
        self.names.pop()

    def _items(self, items: Items) -> None:
        phases = set()
        for at in range(items.count):
            if at % items.accumulate == 0:
                if at:
                    self._end_item()
                self._begin_item()
            self._run(items.body)
            phases.add(self.item.phase if self.item is not None else "")
            if at == items.at:
                break
        self._end_item(kept=items.leave != "raise")
        self.caught = self.caught or items.leave == "raise"
        at_last = items.sized and items.at == items.count - 1
        for phase in phases:
            if items.leave and not at_last:
                self.left[phase] = True

    def _begin_item(self) -> None:
        self._end(self.depth)
        if self.epoch is None:
            self._open(0)
        self.item = Step(self.names[-1] if self.names else "", self.depth, item=True)
        self.depth += 1

    def _end_item(self, *, kept: bool = True) -> None:
        self.depth -= 1
        self._end(self.depth + 1, kept=kept)
        if self.item is not None:
            self.item.kept = kept
        self.item = None

    def _end(self, depth: int, *, kept: bool = True) -> None:
        """End the steps that were opened at a depth or deeper."""
        for step in [each for each in self.loose if each.depth >= depth]:
            step.kept = step.kept and kept
            self.loose.remove(step)
