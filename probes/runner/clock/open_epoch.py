"""The epoch that is open: how it begins and ends, when the next one follows, and whether batches of it were left.

An epoch that the loop does not open ends at the first training call on a pass that begins again a training loader of the epoch
or, where the loaders of the epoch were deleted, another one; or after `epoch_steps` training steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from probes.errors import UsageError
from probes.printable import counted
from probes.runner.clock.answers import EpochEnded, EpochOpened
from probes.runner.clock.batch_passes import TRAIN, BatchPass, BatchPasses
from probes.runner.clock.event_counts import EventCounts
from probes.runner.clock.open_steps import BatchLoop, OpenStep, OpenSteps

LEFT = "left before its last batch"
MIDDLE = "begins in the middle"
BY_OPTIMIZER = ("optimizer", "update")


@dataclass(slots=True)
class OpenEpoch:
    """Opens and ends epochs; the answers are added to `steps.answers`.

    Args:
        rule: what ends a step of phase `train`: `optimizer`, `update`, `batch` or `forward`.
        epoch_steps: training steps of an epoch that the loop does not open itself.
        automatic: whether epochs follow the loaders, as around a script; else the loop opens them, except the first.
        steps: the steps that are open.
        passes: the passes over loaders.
        seen: counts of what the run saw.

    Attributes:
        number: the epoch that is open.
        following: the one to open next.
        implicit: whether calls or items have opened it, and the loop has not.
        begun: whether the loop has begun an epoch or a step itself.
        raised: why a loop over epochs or steps was left by an exception, which may yet be caught.
        loops: the iterations of `run.steps` in it.
        first_step: number of its first training step, as the loop states it.
        before: steps by phase of each epoch that earlier attempts made, as far as they are known.
    """

    rule: str
    epoch_steps: int | None
    automatic: bool
    steps: OpenSteps
    passes: BatchPasses
    seen: EventCounts
    number: int | None = None
    following: int = 0
    implicit: bool = False
    begun: bool = False
    raised: str = ""
    loops: dict[Hashable, BatchLoop] = field(default_factory=dict)
    first_step: int = 0
    before: dict[int, Mapping[str, int]] = field(default_factory=dict)
    _unopened: int = 0
    _turn: list[BatchPass] | None = None
    _earlier: dict[int, Mapping[str, int]] = field(default_factory=dict)
    _continues: bool = False

    @property
    def first(self) -> int:
        """The epoch that a loop begins with: an epoch that calls before the loop have opened becomes the loop's."""
        return self.number if self.number is not None and self.implicit and not self.begun else self.following

    def resume(self, epoch: int, steps: Mapping[int, Mapping[str, int]]) -> None:
        """Continue after the epochs of an earlier attempt, given the steps by phase of each."""
        self.following = epoch
        self._earlier, self.before = dict(steps), dict(steps)

    def begin(self, epoch: int, first_step: int = 0) -> None:
        """The loop begins an epoch.

        Args:
            epoch: its number.
            first_step: number of its first training step; not 0 if the loop continues in its middle.

        Raises:
            UsageError: it is not later than the last one, or calls have opened it, and it does not begin with step 0.
        """
        if epoch == self.number and epoch == self.first:
            if first_step:
                raise UsageError(f"a call of the model has opened epoch {epoch} already, so that it cannot begin with step {first_step}")
            self._adopt()
            return
        if epoch < self._unopened:
            raise UsageError(f"epoch {epoch} is over; the next one is {self._unopened}: epochs are numbered upwards")
        self.end()
        self.begun = True
        self._open(epoch, implicit=False, first_step=first_step)

    def _adopt(self) -> None:
        """Make the epoch that calls had opened the loop's own; a training step without an optimizer step is dropped."""
        self.implicit, self.begun = False, True
        step = self.steps.training()
        if step is not None and not step.updates and not step.index:
            self.seen.outside += step.calls
            self.steps.end(step, keep=False)
            self.steps.dropped -= 1
            self.steps.counts[TRAIN] = 0
        self.steps.end_level(0)

    def open_implicit(self) -> None:
        """Open the next epoch; none is open."""
        self._open(self.following, implicit=True)

    def _open(self, epoch: int, *, implicit: bool, first_step: int = 0) -> None:
        self._continues = epoch in self._earlier
        for before in sorted(self._earlier):
            counts = self._earlier.pop(before)
            if before < epoch:
                self.steps.totals.update(counts)
        self.number, self.following, self.implicit = epoch, epoch + 1, implicit
        self._unopened = epoch + 1
        self.steps.counts.clear()
        self.first_step = first_step
        if first_step:
            self.steps.counts[TRAIN] = first_step
            if self._continues:
                self.before[epoch] = {**self.before[epoch], TRAIN: first_step}
        self.steps.unused = [0, 0]
        self.raised = ""
        self.steps.answers.append(EpochOpened(epoch, dict(self.steps.totals), first_step))

    def end(self, *, complete: bool = True, reason: str = "", check: bool = True) -> None:
        """End the epoch that is open, if one is.

        Args:
            complete: whether nothing was raised.
            reason: why it is not complete.
            check: whether batches that were left make it incomplete.
        """
        if self.number is None:
            return
        reason = reason or self.raised
        self.steps.end_level(0, keep=complete)
        if complete and not reason and check:
            reason = LEFT if self._left() else self._middle()
        epoch, self.number, steps = self.number, None, dict(self.steps.counts)
        self.steps.totals.update(self.steps.counts)
        self.steps.counts.clear()
        self.loops.clear()
        self._turn = None
        self.passes.end_epoch()
        self.steps.answers.append(EpochEnded(epoch, complete and not reason, reason, steps))

    def _left(self) -> bool:
        """Whether batches of the epoch were left."""
        training = self.steps.counts[TRAIN] > self.first_step
        loops = any(not loop.at_last and (loop.phase == TRAIN or not training) for loop in self.loops.values() if loop.phase)
        return loops or self.passes.left(held_too=self.automatic)

    def _middle(self) -> str:
        """How much was skipped if the epoch begins in the middle, as after a checkpoint; else an empty text.

        Batches that a loop pulls and does not use count only in an epoch that an earlier attempt began; elsewhere they may fill a buffer.
        """
        if self.first_step:
            return f"{MIDDLE}: its first step is {self.first_step}"
        before, later = self.steps.unused
        skipped = max(self.passes.skipped(unused=self._continues), before if self._continues and not later else 0)
        return f"{MIDDLE}: {counted(skipped, 'batch', 'batches')} skipped" if skipped else ""

    def _next(self, fed: list[BatchPass], *, check: bool = True) -> None:
        """End the epoch, and begin the next one with the passes that continue."""
        self.passes.epoch = [one for one in self.passes.epoch if one not in fed]
        self.end(check=check)
        self._open(self.following, implicit=True)
        self.passes.end_epoch(fed)

    def feed(self) -> None:
        """Record the passes that feed the training call that enters."""
        known = self.passes.loaders
        fed = self.passes.feed()
        step = next((step for step in self.steps.stack if step.accumulates), None)
        begins = self.passes.adopt(fed, known, by_optimizer=self._by_optimizer)
        if step is not None and self.passes.main in fed:
            step.pulled = True
        if begins:
            self._begin_pass(fed, step)

    def foresee(self, *, grad: bool) -> None:
        """Record a pass that is going to feed the training, though a call of another phase comes first, such as for a label."""
        fresh = self.passes.ahead(grad=grad)
        step = next((step for step in self.steps.stack if step.accumulates), None)
        if fresh and self.passes.adopt(fresh, self.passes.loaders, by_optimizer=self._by_optimizer):
            self._begin_pass(fresh, step)

    @property
    def _by_optimizer(self) -> bool:
        """Whether optimizer steps tell the training loaders from others; without any, training calls do."""
        return self.rule in BY_OPTIMIZER and bool(self.seen.updates)

    def _begin_pass(self, fed: list[BatchPass], step: OpenStep | None) -> None:
        """End the epoch, since one of the passes that feed the training begins a loader again."""
        if not self.automatic or self.epoch_steps is not None or not self.implicit:
            return
        if step is not None and not step.updates and fed[0].endless and self.rule in BY_OPTIMIZER:
            self._turn = fed  # batches of an endless stream are accumulated across the end of a pass
        else:
            self._next(fed)

    def roll(self) -> None:
        """Begin the next epoch if a training step is about to open and the epoch has all its steps."""
        if self.steps.stack or not self.implicit:
            return
        if self._turn is not None:
            self._next(self._turn)
        elif self.epoch_steps and self.steps.counts[TRAIN] >= self.epoch_steps:
            self._next(self.passes.epoch, check=False)
