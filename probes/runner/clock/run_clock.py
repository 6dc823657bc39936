"""The clock of a run: what an epoch, a phase, a step and a microstep are.

A state machine without torch. It takes events (a call enters, a batch is pulled, an optimizer steps, the loop says something)
and returns what follows from them (an epoch opens, a step is committed). Nothing else writes it; hooks read positions that
it gave. Its rules:

- A step that the loop opens itself wins: an item of `run.steps`, or `run.step()`.
- A step of phase `train` ends as `clock.step` says: with `optimizer` at the first pull of the training loader (without a loader
  at the first training call) after an optimizer of the model has stepped; with `update` at the first pull or training call after
  that; with `batch` at each batch of the training loader; with `forward` at each call.
- A step of another phase is a batch of the loader that the phase itself goes over, if there is one, else an outermost call.
- When an epoch ends that the loop does not open is the rule of `open_epoch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from probes.runner.clock.answers import Answers, Position, SeveralUpdates
from probes.runner.clock.batch_passes import TRAIN, BatchPass, BatchPasses
from probes.runner.clock.call_steps import CallSteps
from probes.runner.clock.event_counts import EventCounts
from probes.runner.clock.open_epoch import BY_OPTIMIZER, OpenEpoch
from probes.runner.clock.open_steps import BatchLoop, OpenStep, OpenSteps


@dataclass(slots=True)
class RunClock:
    """Takes events and returns answers.

    Args:
        rule: what ends a step of phase `train`: `optimizer`, `update`, `batch` or `forward`.
        epoch_steps: training steps of an epoch that the loop does not open itself.
        automatic: whether epochs follow the loaders, as around a script; else the loop opens them, except the first.

    Attributes:
        phases: the phases that the loop has named, the innermost last.
        steps: the steps that are open.
        calls: the step and the position of each thread's outermost call.
        passes: the passes over loaders.
        current: the epoch that is open.
        call_steps: which step a call belongs to.
        seen: counts of what the run saw.
    """

    rule: str = "optimizer"
    epoch_steps: int | None = None
    automatic: bool = False
    phases: list[str] = field(default_factory=list)
    steps: OpenSteps = field(default_factory=OpenSteps)
    calls: dict[int, tuple[OpenStep, Position]] = field(default_factory=dict)
    passes: BatchPasses = field(default_factory=BatchPasses)
    seen: EventCounts = field(default_factory=EventCounts)
    current: OpenEpoch = field(init=False)
    call_steps: CallSteps = field(init=False)

    def __post_init__(self) -> None:
        self.current = OpenEpoch(self.rule, self.epoch_steps, self.automatic, self.steps, self.passes, self.seen)
        self.call_steps = CallSteps(self.rule, self.steps, self.passes, self.current, self.seen)

    # Epochs

    @property
    def epoch(self) -> int | None:
        """The epoch that is open."""
        return self.current.number

    @property
    def next_epoch(self) -> int:
        """The epoch to open next."""
        return self.current.following

    @property
    def counts(self) -> Counter[str]:
        """Steps of the open epoch, by phase."""
        return self.steps.counts

    @property
    def totals(self) -> Counter[str]:
        """Steps of the epochs before, by phase."""
        return self.steps.totals

    @property
    def first_epoch(self) -> int:
        """The epoch that a loop begins with: an epoch that calls before the loop have opened becomes the loop's."""
        return self.current.first

    def begin_with(self, epoch: int) -> None:
        """Give the next epoch a number."""
        self.current.following = epoch

    def resume(self, epoch: int, steps: Mapping[int, Mapping[str, int]]) -> None:
        """Continue a run that was begun before.

        Args:
            epoch: the next epoch; the loop may name another.
            steps: steps by phase of every earlier epoch.
        """
        self.current.resume(epoch, steps)

    def epoch_begins(self, epoch: int, first_step: int = 0) -> Answers:
        """The loop begins an epoch.

        Args:
            epoch: its number.
            first_step: number of its first training step; not 0 if the loop continues in its middle.

        Raises:
            UsageError: it is not later than the last one, or calls have opened it, and it does not begin with step 0.
        """
        self.current.begin(epoch, first_step)
        return self.steps.take()

    def epoch_ends(self, *, complete: bool = True, reason: str = "") -> Answers:
        """The loop, or the run, ends the epoch that is open.

        Args:
            complete: whether nothing was raised; batches that were left make the epoch incomplete in any case.
            reason: why it is not complete.
        """
        self.current.end(complete=complete, reason=reason)
        return self.steps.take()

    def loop_raised(self, reason: str) -> None:
        """An exception has left a loop over epochs or steps; it may still be caught."""
        self.current.raised = reason

    def program_exits(self) -> None:
        """The program ends by an exit code: a training step without an optimizer step is dropped, unless its pass has ended."""
        ended = self.passes.main is not None and bool(self.passes.main.exhausted)
        for step in self.steps.stack:
            step.raised = step.raised or (step.phase == TRAIN and not step.updates and not ended)

    # What the loop says

    def item_begins(self, key: Hashable, ids: Sequence[int | str] = (), loop: Hashable = None, after: Hashable = None) -> Answers:
        """The loop opens a step itself; its phase is the one that is named, else that of its first call.

        Args:
            key: anything that tells the item from others.
            ids: sample ids.
            loop: the iteration of `run.steps` that it belongs to.
            after: the item before it, which is over.
        """
        if after is not None:
            self.steps.end_item(after)
        if self.steps.stack:
            self.steps.end_level(len(self.phases))
        if self.current.number is None:
            self.current.open_implicit()
        self.current.begun = True
        phase = self.phases[-1] if self.phases else ""
        if phase in ("", TRAIN):
            self.current.roll()
        self.steps.push(OpenStep(phase, len(self.phases), key, self.current.loops.get(loop), ids=tuple(ids)))
        return self.steps.take() if self.steps.answers else ()

    def item_ids(self, key: Hashable, ids: Sequence[int | str]) -> None:
        """Sample ids for an open item."""
        for step in self.steps.stack:
            if step.item == key:
                step.ids = tuple(ids)

    def item_ends(self, key: Hashable, *, keep: bool = True) -> Answers:
        """An item is over, and everything open within it."""
        self.steps.end_item(key, keep=keep)
        return self.steps.take()

    def loop_begins(self, key: Hashable) -> None:
        """An iteration of `run.steps` begins."""
        self.current.loops[key] = BatchLoop()

    def loop_gives(self, key: Hashable, *, last: bool) -> None:
        """The loop gives a batch; `last`, if it is known to be the last one."""
        if key in self.current.loops:
            self.current.loops[key].at_last = last

    def loop_ends(self, key: Hashable) -> None:
        """The loop has given all its batches."""
        self.current.loops.pop(key, None)

    def steps_end(self) -> Answers:
        """Training stops here: the open steps are committed."""
        self.steps.end_level(0)
        return self.steps.take()

    def phase_named(self, name: str) -> Answers:
        """The loop names the phase of the following calls; an open training step continues afterwards."""
        step = self.steps.innermost()
        if step is not None and step.item is None and (step.phase != TRAIN or step.updates):
            self.steps.end(step)
        self.phases.append(name)
        return self.steps.take()

    def phase_ends(self, *, raised: str = "") -> Answers:
        """The phase that was named last ends, with its steps; they are dropped if its body raised."""
        self.steps.end_level(len(self.phases), keep=not raised)
        self.phases.pop()
        self.current.raised = raised or self.current.raised
        return self.steps.take()

    # What the model and its optimizers do

    def call_enters(self, phase: str, thread: int = 0, *, grad: bool = False) -> Answers:
        """An outermost call enters.

        Args:
            phase: `train` if the model trains and gradients are on, else `eval`; a phase that the loop has named wins.
            thread: the thread it enters in.
            grad: whether gradients are on, so that a backward may follow; a step that is this call alone then waits for it.
        """
        phase = self.phases[-1] if self.phases else phase
        current = self.current
        current.raised = ""
        if current.number is None:
            if not self.automatic and current.begun:
                self.seen.outside += 1
                return ()
            current.open_implicit()
        self.seen.call(phase == TRAIN)
        step = self.call_steps.of(phase, len(self.phases), grad=grad)
        if step.index < 0:
            self.steps.number(step, phase)
        self.calls[thread] = step, Position(current.following - 1, step.phase, step.index, step.calls)
        step.calls += 1
        step.running += 1
        step.waits = grad and step.single and len(self.steps.stack) == 1
        step.raised = step.raised and step.item is not None
        step.pulled = False
        return self.steps.take() if self.steps.answers else ()

    def position(self, thread: int = 0) -> Position | None:
        """The place of the thread's outermost call; None outside any."""
        return self.calls[thread][1] if thread in self.calls else None

    def call_leaves(self, thread: int = 0, *, raised: bool = False) -> Answers:
        """The outermost call of a thread returns, or raises."""
        if thread not in self.calls:
            return ()
        step, _ = self.calls.pop(thread)
        step.running -= 1
        # An item belongs to the loop. Without a loader, a skipped batch looks like a call that is retried.
        step.raised = raised and step.item is None and (step.phase != TRAIN or self.passes.has_main)
        if step.single and step in self.steps.stack and (raised or not step.waits):
            self.steps.end(step)
        return self.steps.take() if self.steps.answers else ()

    def ahead(self) -> tuple[str, int] | None:
        """The phase and number of the step that a training call would open now; None if it would continue an open one."""
        return self.call_steps.ahead()

    def optimizer_stepped(self, *, skipped: bool = False) -> Answers:
        """An optimizer of the clock's model has stepped, or a GradScaler has skipped its step."""
        self.passes.optimizer_stepped()
        step = self.steps.training()
        self.seen.update(skipped=skipped, first=step is not None and not step.updates)
        if step is None:
            return ()
        step.raised = False
        step.updates += 1
        if step.called and self.rule == "optimizer" and step.item is None and not self.seen.several:
            self.seen.several = True
            self.steps.answers.append(SeveralUpdates(step.updates))
        step.called = False
        return self.steps.take()

    # What the loaders do

    def pass_begins(self, key: Hashable, loader: Hashable, *, endless: bool = False, skipped: int = 0) -> Answers:
        """The program begins to iterate over a loader.

        Args:
            key: anything that tells the pass from others.
            loader: anything that tells the loader from others.
            endless: whether the same generator had begun a pass over it before, as in `while True: yield from loader`.
            skipped: batches that the loader states to leave out at its beginning.
        """
        self.passes.begin(key, loader, endless, skipped)
        return ()

    def batch_pulled(self, key: Hashable, phase: str, *, last: bool = False) -> Answers:
        """A batch is requested.

        Args:
            key: the pass.
            phase: the phase that a call would be in now.
            last: whether it is known to be the last one.
        """
        self.steps.end_batch(self.passes.known(key))
        self.steps.end_waiting()
        found = self.passes.pull(key, self.phases[-1] if self.phases else phase, last)
        step = self.steps.innermost()
        if step is not None and step.accumulates and (found.feeds or found.loader.trains or self._begins_a_loop(found)):
            by_update = bool(step.updates) and self.rule in BY_OPTIMIZER
            if by_update or step.raised or (self.rule == "batch" and found is self.passes.main):
                self.steps.end(step)
        return self.steps.take()

    def _begins_a_loop(self, found: BatchPass) -> bool:
        """Whether a loop over another loader begins after one that made a step of each batch."""
        main = self.passes.main
        return found.phase == TRAIN and found.pulls == 1 and main is not None and main is not found and main.is_a_loop

    def pass_exhausted(self, key: Hashable) -> Answers:
        """A pass has no more batches; a training step with an optimizer step is committed, because it is complete."""
        found = self.passes.exhaust(key)
        if found is not None:
            self.steps.end_batch(found)
            step = self.steps.innermost()
            if found.feeds and step is not None and step.accumulates and step.updates:
                self.steps.end(step)
        return self.steps.take()

    def pass_deleted(self, key: Hashable) -> Answers:
        """The iterator of a pass was deleted."""
        self.steps.end_batch(self.passes.drop(key))
        return self.steps.take()

    def loader_deleted(self, loader: Hashable) -> Answers:
        """A loader was deleted."""
        self.passes.drop_loader(loader)
        return ()
