"""The steps that are open: one within the other, the innermost last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from probes.runner.clock.answers import Answer, Answers, StepEnded, StepOpened, StepPaused, StepResumed
from probes.runner.clock.batch_passes import TRAIN, BatchPass


@dataclass(eq=False, slots=True)
class BatchLoop:
    """An iteration of `run.steps`.

    Attributes:
        phase: phase of its last step.
        at_last: whether it has given its last batch, as far as that is known.
    """

    phase: str = ""
    at_last: bool = False


@dataclass(eq=False, slots=True)
class OpenStep:
    """A step that is open.

    Attributes:
        phase: its phase; empty for an item of the loop before its first call.
        index: step within (epoch, phase); -1 before its first call.
        level: how many phases were named when it was opened.
        item: key of the item that the loop opened; None for a step that opened by itself.
        loop: the iteration of `run.steps` that it belongs to.
        within: key of the item that it was opened in.
        batch: the pass whose batch the step is.
        single: whether it is over when its call is.
        waits: whether it continues after its call, for a backward, until anything else happens.
        paused: whether a step of another phase runs within it.
        calls: outermost calls so far.
        running: calls that have not returned.
        raised: whether its last call, or its body, raised, and no optimizer has stepped since.
        updates: optimizer steps in it.
        called: whether a training call came after the last of them.
        pulled: whether a batch of the training loader was pulled since its last call.
        ids: sample ids, if the loop gave them.
    """

    phase: str
    level: int
    item: Hashable = None
    loop: BatchLoop | None = None
    within: Hashable = None
    batch: BatchPass | None = None
    single: bool = False
    waits: bool = False
    paused: bool = False
    index: int = -1
    calls: int = 0
    running: int = 0
    raised: bool = False
    updates: int = 0
    called: bool = False
    pulled: bool = False
    ids: tuple[int | str, ...] = ()

    @property
    def accumulates(self) -> bool:
        """Whether it is a training step that the loop did not open, and no call of it is running."""
        return self.phase == TRAIN and self.item is None and not self.running


@dataclass(slots=True)
class OpenSteps:
    """Opens, numbers and ends steps, and adds the answers.

    Attributes:
        stack: the open steps; all but the innermost are paused, and several calls of other threads may overlap.
        counts: steps of the open epoch, by phase.
        totals: steps of the epochs before, by phase.
        dropped: steps that were not committed.
        uncalled: items without a call, in all epochs.
        unused: items without a call before the first training step of the open epoch, and after it.
        answers: what has followed since they were taken last.
    """

    stack: list[OpenStep] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    uncalled: int = 0
    unused: list[int] = field(default_factory=lambda: [0, 0])
    answers: list[Answer] = field(default_factory=list)

    def ids_of(self, phase: str, index: int) -> tuple[int | str, ...]:
        """The sample ids of an open step, as far as the loop gave them."""
        return next((tuple(step.ids) for step in self.stack if (step.phase, step.index) == (phase, index)), ())

    def innermost(self) -> OpenStep | None:
        """The innermost step that is not the single call of another thread."""
        for step in reversed(self.stack):
            if not (step.single and step.running):
                return step
        return None

    def training(self) -> OpenStep | None:
        """The innermost step of phase `train`."""
        return next((step for step in reversed(self.stack) if step.phase == TRAIN), None)

    def item(self) -> OpenStep | None:
        """The innermost step that the loop opened itself."""
        for step in reversed(self.stack):
            if step.item is not None:
                return step
        return None

    def accumulating(self, item: OpenStep | None) -> OpenStep | None:
        """The training step that has opened by itself within an item of another phase, or outside of any."""
        within = item.item if item is not None else None
        return next((step for step in reversed(self.stack) if step.phase == TRAIN and step.item is None and step.within == within), None)

    def push(self, step: OpenStep) -> OpenStep:
        """Open a step within the innermost one."""
        if self.stack:
            around, item = self.innermost(), self.item()
            if around is not None:
                self._pause(around)
            step.within = item.item if item is not None else None
        self.stack.append(step)
        return step

    def go_on(self, step: OpenStep) -> OpenStep:
        """Continue a step while another one, within the same item, stays open."""
        inner = step if self.stack[-1] is step else self.innermost()
        if inner is not step and inner is not None:
            self._pause(inner)
            self.stack.remove(step)
            self.stack.append(step)
            self._resume(step)
        return step

    def _pause(self, step: OpenStep) -> None:
        if not step.paused:
            step.paused = True
            if step.index >= 0:
                self.answers.append(StepPaused(step.phase, step.index))

    def _resume(self, step: OpenStep) -> None:
        if step.paused:
            step.paused = False
            if step.index >= 0:
                self.answers.append(StepResumed(step.phase, step.index))

    def number(self, step: OpenStep, phase: str) -> None:
        """Give a step its phase and its number, when its first call enters."""
        step.phase, step.index = phase, self.counts[phase]
        self.counts[phase] += 1
        if step.loop is not None:
            step.loop.phase = phase
        self.answers.append(StepOpened(phase, step.index))

    def end(self, step: OpenStep, *, keep: bool = True) -> None:
        """Commit or drop a step, and continue the one around it."""
        if step.paused:  # its captures were set aside
            self.go_on(step)
        self.stack.remove(step)
        returned = step.single and not step.running  # it only waits for a backward, so a later exception does not concern it
        keep = (keep or returned) and not step.raised
        if step.index >= 0:
            self.dropped += not keep
            before = self.totals.get(step.phase, 0)
            self.answers.append(StepEnded(step.phase, step.index, keep, step.ids, before + step.index))
        else:
            self.uncalled += 1
            if step.phase in ("", TRAIN):
                self.unused[self.counts[TRAIN] > 0] += 1
        if self.stack:
            self._resume(self.stack[-1])

    def end_item(self, key: Hashable, *, keep: bool = True) -> None:
        """End an item of the loop, and what is open within it."""
        for step in self.stack[::-1]:
            if key in (step.item, step.within):
                self.end(step, keep=keep)

    def end_level(self, level: int, *, keep: bool = True) -> None:
        """End the steps that were opened with at least `level` named phases."""
        for step in self.stack[::-1]:
            if step.level >= level:
                self.end(step, keep=keep)

    def end_batch(self, batch: BatchPass | None) -> None:
        """End the step that is the last batch of a pass."""
        for step in [step for step in self.stack if batch is not None and step.batch is batch and not step.running]:
            self.end(step)

    def end_waiting(self) -> None:
        """End a step of a single call that only waited for a backward."""
        for step in [step for step in self.stack if step.single and not step.running]:
            self.end(step)

    def end_other_phases(self) -> None:
        """End the steps of other phases that opened by themselves, since a training call enters."""
        while self.stack and self.stack[-1].item is None and self.stack[-1].phase != TRAIN and not self.stack[-1].running:
            self.end(self.stack[-1])

    def take(self) -> Answers:
        """Take the answers since the last call."""
        if not self.answers:
            return ()
        answers, self.answers = tuple(self.answers), []
        return answers
