"""The clock of a run: what an epoch, a phase, a step and a microstep are.

A state machine without torch. It takes events (a call enters, a batch is pulled, an optimizer steps, the loop says something)
and returns what follows from them (an epoch opens, a step is committed). Nothing else writes it; hooks read positions that
it gave. Its rules:

- A step that the loop opens itself wins: an item of `run.steps`, or `run.step()`.
- A step of phase `train` ends as `clock.step` says: with `optimizer` at the first pull of the training loader (without a loader
  at the first training call) after an optimizer of the model has stepped; with `update` at the first pull or training call after
  that; with `batch` at each batch of the training loader; with `forward` at each call.
- A step of another phase is a batch of the loader that the phase itself goes over, where there is one, else an outermost call.
- An epoch that the loop does not open ends at the first training call on a pass that begins anew a training loader of the
  epoch or, where the loaders of the epoch are gone, another one; or after `epoch_steps` training steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from probes.errors import UsageError
from probes.runner.clock.answers import Answers, EpochEnded, EpochOpened, Position, SeveralUpdates
from probes.runner.clock.batch_passes import TRAIN, BatchPass, BatchPasses
from probes.runner.clock.event_counts import EventCounts
from probes.runner.clock.open_steps import BatchLoop, OpenStep, OpenSteps

LEFT = "left before its last batch"
BY_OPTIMIZER = ("optimizer", "update")


@dataclass(slots=True)
class RunClock:
    """Takes events and returns what follows.

    Args:
        rule: what ends a step of phase `train`: `optimizer`, `update`, `batch` or `forward`.
        epoch_steps: training steps of an epoch that the loop does not open itself.
        automatic: whether epochs follow the loaders, as around a script; else the loop opens them, except the first.

    Attributes:
        epoch: the epoch that is open.
        next_epoch: the one to open next.
        phases: the phases that the loop has named, the innermost last.
        steps: the steps that are open.
        calls: the step and the position of each thread's outermost call.
        passes: the passes over loaders.
        seen: counts of what the run saw.
    """

    rule: str = "optimizer"
    epoch_steps: int | None = None
    automatic: bool = False
    epoch: int | None = None
    next_epoch: int = 0
    phases: list[str] = field(default_factory=list)
    steps: OpenSteps = field(default_factory=OpenSteps)
    calls: dict[int, tuple[OpenStep, Position]] = field(default_factory=dict)
    passes: BatchPasses = field(default_factory=BatchPasses)
    seen: EventCounts = field(default_factory=EventCounts)
    _implicit: bool = False
    _begun: bool = False
    _raised: str = ""
    _turn: list[BatchPass] | None = None
    _loops: dict[Hashable, BatchLoop] = field(default_factory=dict)
    _earlier: dict[int, Mapping[str, int]] = field(default_factory=dict)

    # Epochs

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
        """The epoch that a loop begins with: one that calls before the loop have opened is the loop's own."""
        return self.epoch if self.epoch is not None and self._implicit and not self._begun else self.next_epoch

    def resume(self, epoch: int, steps: Mapping[int, Mapping[str, int]]) -> None:
        """Go on with a run that was begun before.

        Args:
            epoch: the next epoch; the loop may name another.
            steps: steps by phase of every earlier epoch.
        """
        self.next_epoch = epoch
        self._earlier = dict(steps)

    def epoch_begins(self, epoch: int) -> Answers:
        """The loop begins an epoch.

        Raises:
            UsageError: it is not later than the last one.
        """
        if epoch == self.epoch and epoch == self.first_epoch:
            self._adopt_epoch()
            return self.steps.take()
        if epoch < self.next_epoch and self._begun:
            raise UsageError(f"epoch {epoch} is over; the next one is {self.next_epoch}: epochs are numbered upwards")
        self._end_epoch()
        self._begun = True
        self._open_epoch(epoch, implicit=False)
        return self.steps.take()

    def epoch_ends(self, *, complete: bool = True, reason: str = "") -> Answers:
        """The loop, or the run, ends the epoch that is open.

        Args:
            complete: whether nothing was raised; batches that were left make the epoch incomplete in any case.
            reason: why it is not complete.
        """
        self._end_epoch(complete=complete, reason=reason)
        return self.steps.take()

    def loop_raised(self, reason: str) -> None:
        """An exception has left a loop over epochs or steps, and may yet be caught."""
        self._raised = reason

    def program_exits(self) -> None:
        """The program ends by an exit code: a training step is dropped that no optimizer and no end of its pass has ended."""
        ended = self.passes.main is not None and bool(self.passes.main.exhausted)
        for step in self.steps.stack:
            step.raised = step.raised or (step.phase == TRAIN and not step.updates and not ended)

    def _adopt_epoch(self) -> None:
        """Make the epoch that calls had opened the loop's own; a training step that no optimizer has ended is no step of the loop."""
        self._implicit, self._begun = False, True
        step = self.steps.training()
        if step is not None and not step.updates and not step.index:
            self.seen.outside += step.calls
            self.steps.end(step, keep=False)
            self.steps.dropped -= 1
            self.counts[TRAIN] = 0
        self.steps.end_level(0)

    def _open_epoch(self, epoch: int, *, implicit: bool) -> None:
        for before in sorted(self._earlier):
            counts = self._earlier.pop(before)
            if before < epoch:
                self.totals.update(counts)
        self.epoch, self.next_epoch, self._implicit = epoch, epoch + 1, implicit
        self.counts.clear()
        self._raised = ""
        self.steps.answers.append(EpochOpened(epoch, dict(self.totals)))

    def _end_epoch(self, *, complete: bool = True, reason: str = "", check: bool = True) -> None:
        if self.epoch is None:
            return
        reason = reason or self._raised
        self.steps.end_level(0, keep=complete)
        if complete and not reason and check and self._left():
            reason = LEFT
        epoch, self.epoch, steps = self.epoch, None, dict(self.counts)
        self.totals.update(self.counts)
        self.counts.clear()
        self._loops.clear()
        self._turn = None
        self.passes.end_epoch()
        self.steps.answers.append(EpochEnded(epoch, complete and not reason, reason, steps))

    def _left(self) -> bool:
        """Whether batches of the epoch were left."""
        training = bool(self.counts[TRAIN])
        loops = any(not loop.at_last and (loop.phase == TRAIN or not training) for loop in self._loops.values() if loop.phase)
        return loops or self.passes.left(held_too=self.automatic)

    def _next_epoch(self, fed: list[BatchPass], *, check: bool = True) -> None:
        """End the epoch, and begin the next one with the passes that feed it."""
        self.passes.epoch = [one for one in self.passes.epoch if one not in fed]
        self._end_epoch(check=check)
        self._open_epoch(self.next_epoch, implicit=True)
        self.passes.end_epoch(fed)

    # What the loop says

    def item_begins(self, key: Hashable, ids: Sequence[int | str] = (), loop: Hashable = None) -> Answers:
        """The loop opens a step itself; its phase is the one that is named, else that of its first call.

        Args:
            key: anything that tells the item from others.
            ids: sample ids.
            loop: the iteration of `run.steps` that it belongs to.
        """
        if self.steps.stack:
            self.steps.end_level(len(self.phases))
        if self.epoch is None:
            self._open_epoch(self.next_epoch, implicit=True)
        self._begun = True
        phase = self.phases[-1] if self.phases else ""
        if self._implicit and phase in ("", TRAIN):
            self._roll()
        self.steps.push(OpenStep(phase, len(self.phases), key, self._loops.get(loop), ids=tuple(ids)))
        return self.steps.take()

    def item_ids(self, key: Hashable, ids: Sequence[int | str]) -> None:
        """The samples of an open item."""
        for step in self.steps.stack:
            if step.item == key:
                step.ids = tuple(ids)

    def item_ends(self, key: Hashable, *, keep: bool = True) -> Answers:
        """An item is over; what is open within it ends too."""
        self.steps.end_item(key, keep=keep)
        return self.steps.take()

    def loop_begins(self, key: Hashable) -> None:
        """An iteration of `run.steps` begins."""
        self._loops[key] = BatchLoop()

    def loop_gives(self, key: Hashable, *, last: bool) -> None:
        """It gives a batch; `last`, where that is known to be the last one."""
        if key in self._loops:
            self._loops[key].at_last = last

    def loop_ends(self, key: Hashable) -> None:
        """It has given all its batches."""
        self._loops.pop(key, None)

    def steps_end(self) -> Answers:
        """Training stops here: the open steps are committed."""
        self.steps.end_level(0)
        return self.steps.take()

    def phase_named(self, name: str) -> Answers:
        """The loop names the phase of what comes; a training step that no optimizer has ended goes on afterwards."""
        step = self.steps.innermost()
        if step is not None and step.item is None and (step.phase != TRAIN or step.updates):
            self.steps.end(step)
        self.phases.append(name)
        return self.steps.take()

    def phase_ends(self, *, raised: str = "") -> Answers:
        """The phase that was named last ends; what was opened in it ends too, and is dropped where its body raised."""
        self.steps.end_level(len(self.phases), keep=not raised)
        self.phases.pop()
        self._raised = raised or self._raised
        return self.steps.take()

    # What the model and its optimizers do

    def call_enters(self, phase: str, thread: int = 0, *, grad: bool = False) -> Answers:
        """An outermost call enters.

        Args:
            phase: `train` where the model trains and gradients are on, else `eval`; a phase that the loop has named wins.
            thread: the thread it enters in.
            grad: whether gradients are on, so that a backward may follow; a step that is this call alone then waits for it.
        """
        phase = self.phases[-1] if self.phases else phase
        self._raised = ""
        if self.epoch is None and not self.automatic and self._begun:
            self.seen.outside += 1
            return ()
        if self.epoch is None:
            self._open_epoch(self.next_epoch, implicit=True)
        self.seen.call(phase == TRAIN)
        step = self._training_step() if phase == TRAIN else self._other_step(phase, grad=grad)
        if step.index < 0:
            self.steps.number(step, phase)
        self.calls[thread] = step, Position(self.next_epoch - 1, step.phase, step.index, step.calls)
        step.calls += 1
        step.running += 1
        step.waits = grad and step.single and len(self.steps.stack) == 1
        step.raised = step.raised and step.item is not None
        step.pulled = False
        return self.steps.take()

    def position(self, thread: int = 0) -> Position | None:
        """Where the thread's outermost call is; None outside any."""
        return self.calls[thread][1] if thread in self.calls else None

    def call_leaves(self, thread: int = 0, *, raised: bool = False) -> Answers:
        """The outermost call of a thread returns, or raises."""
        if thread not in self.calls:
            return ()
        step, _ = self.calls.pop(thread)
        step.running -= 1
        # An item is the loop's own, and without a loader nothing tells a batch that was skipped from a call that is tried again.
        step.raised = raised and step.item is None and (step.phase != TRAIN or self.passes.has_main)
        if step.single and step in self.steps.stack and (raised or not step.waits):
            self.steps.end(step)
        return self.steps.take()

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

    def ahead(self) -> tuple[str, int] | None:
        """The phase and number of the step that a training call would open now; None where it would go on with an open one."""
        item = self.steps.item()
        if item is not None and item.index < 0:
            phase = item.phase or TRAIN
            return phase, self.counts[phase]
        step = item if item is not None and item.phase == TRAIN else self.steps.accumulating(item)
        if step is not None and not (step.accumulates and self._is_over(step)):
            return None
        return TRAIN, self.counts[TRAIN]

    def _training_step(self) -> OpenStep:
        """The step of a training call that enters."""
        if self.passes.fresh:
            self._feed()
        if self.steps.stack:
            self.steps.end_other_phases()
        item = self.steps.item()
        step = item if item is not None and item.phase in ("", TRAIN) else self.steps.accumulating(item)
        if step is not None and step.accumulates and self._is_over(step):
            self.steps.end(step)
            step = None
        if step is None:
            self._roll()
            step = self.steps.push(OpenStep(TRAIN, len(self.phases)))
        step.called = bool(step.updates)
        return self.steps.go_on(step)

    def _is_over(self, step: OpenStep) -> bool:
        """Whether a training call is the first behind a training step that the loop did not open."""
        if self.rule == "forward":
            return True
        if self.rule == "batch":
            return step.pulled
        if self.rule == "optimizer" and self.passes.has_main:
            return False
        return bool(step.updates)

    def _other_step(self, phase: str, *, grad: bool) -> OpenStep:
        """The step of a call of another phase that enters."""
        self._foresee(grad=grad)
        item = self.steps.item()
        if item is not None and item.phase in ("", phase):
            return self.steps.go_on(item)
        step = self.steps.innermost()
        batch = self.passes.evaluated(phase)
        if step is not None and batch is not None and step.batch is batch and step.phase == phase:
            return step
        if step is not None and step.item is None and not step.running and (step.phase != TRAIN or self._is_left(step)):
            self.steps.end(step)
        if batch is None or not batch.unserved:
            return self.steps.push(OpenStep(phase, len(self.phases), single=True))
        batch.serve()
        return self.steps.push(OpenStep(phase, len(self.phases), batch=batch))

    def _is_left(self, step: OpenStep) -> bool:
        """Whether a call of another phase ends the open training step, rather than to run within it."""
        return bool(step.updates) and not self.passes.has_main

    def _feed(self) -> None:
        """Take note of the passes that feed the training call that enters."""
        known = self.passes.loaders
        fed = self.passes.feed()
        step = next((step for step in self.steps.stack if step.accumulates), None)
        begins = self.passes.adopt(fed, known, by_optimizer=self._by_optimizer)
        if step is not None and self.passes.main in fed:
            step.pulled = True
        if begins:
            self._begin_pass(fed, step)

    def _foresee(self, *, grad: bool) -> None:
        """Take note of a pass that is going to feed the training, though a call of another phase comes first, such as for a label."""
        fresh = self.passes.ahead(grad=grad)
        step = next((step for step in self.steps.stack if step.accumulates), None)
        if fresh and self.passes.adopt(fresh, self.passes.loaders, by_optimizer=self._by_optimizer):
            self._begin_pass(fresh, step)

    @property
    def _by_optimizer(self) -> bool:
        """Whether an optimizer's step tells the training loaders from others: where none has stepped the training calls do."""
        return self.rule in BY_OPTIMIZER and bool(self.seen.updates)

    def _begin_pass(self, fed: list[BatchPass], step: OpenStep | None) -> None:
        """End the epoch, since one of the passes that feed the training begins a loader anew."""
        if not self.automatic or self.epoch_steps is not None or not self._implicit:
            return
        if step is not None and not step.updates and fed[0].endless and self.rule in BY_OPTIMIZER:
            self._turn = fed  # batches of an endless stream are accumulated over the end of a pass
        else:
            self._next_epoch(fed)

    def _roll(self) -> None:
        """Begin the next epoch where a training step is about to open and the epoch has had its steps."""
        if self.steps.stack or not self._implicit:
            return
        if self._turn is not None:
            self._next_epoch(self._turn)
        elif self.epoch_steps and self.counts[TRAIN] >= self.epoch_steps:
            self._next_epoch(self.passes.epoch, check=False)

    # What the loaders do

    def pass_begins(self, key: Hashable, loader: Hashable, *, endless: bool = False) -> Answers:
        """The program begins to iterate over a loader.

        Args:
            key: anything that tells the pass from others.
            loader: anything that tells the loader from others.
            endless: whether the same generator had begun a pass over it before, as in `while True: yield from loader`.
        """
        self.passes.begin(key, loader, endless)
        return ()

    def batch_pulled(self, key: Hashable, phase: str, *, last: bool = False) -> Answers:
        """A batch is asked for.

        Args:
            key: the pass.
            phase: the phase that a call would be in now.
            last: whether it is known to be the last one.
        """
        self.steps.end_batch(self.passes.known(key))
        self.steps.end_waiting()
        found = self.passes.pull(key, self.phases[-1] if self.phases else phase, last)
        step = self.steps.innermost()
        if step is not None and step.accumulates and (found.feeds or found.loader.trains):
            by_update = bool(step.updates) and self.rule in BY_OPTIMIZER
            if by_update or step.raised or (self.rule == "batch" and found is self.passes.main):
                self.steps.end(step)
        return self.steps.take()

    def pass_exhausted(self, key: Hashable) -> Answers:
        """A pass has no more batches; a training step that an optimizer has ended is committed, as nothing of it can come."""
        found = self.passes.exhaust(key)
        if found is not None:
            self.steps.end_batch(found)
            step = self.steps.innermost()
            if found.feeds and step is not None and step.accumulates and step.updates:
                self.steps.end(step)
        return self.steps.take()

    def pass_gone(self, key: Hashable) -> Answers:
        """Nobody holds the iterator of a pass any more."""
        self.steps.end_batch(self.passes.drop(key))
        return self.steps.take()

    def loader_gone(self, loader: Hashable) -> Answers:
        """Nobody holds a loader any more."""
        self.passes.drop_loader(loader)
        return ()
