"""A run: a model with probes attached, from the first epoch to the last sealed file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from probes.errors import ProbesError, RunError, Stopped, StorageError, UsageError
from probes.hooks.account import Account
from probes.hooks.moment import Moment
from probes.hooks.tap import Tap
from probes.plan import Plan
from probes.runner.accumulations import Accumulations
from probes.runner.closing import closing
from probes.runner.entry import Entry, phase_of
from probes.runner.forks import follow
from probes.runner.live import Live
from probes.runner.outlets import Outlets
from probes.runner.recording import Recording
from probes.runner.room import Room
from probes.runner.schedule import Schedule
from probes.runner.summary import Summary, verdicts
from probes.runner.timeline import Deaf, Timeline
from probes.store.claim import release
from probes.store.past import Past

EXIT_SECONDS = 3.0  # how long a program that is interrupted waits for the sealer, which then goes on by itself

Ids = Callable[[Any], Sequence[Any]]


class Run:
    """A model with probes attached. Use it as a context manager; leaving it takes every hook off the model.

    Attributes:
        plan: what the spec came to on this model.
        directory: where the files are.
        timeline: the run's clock.
    """

    def __init__(self, plan: Plan, recording: Recording, past: Past | None = None, *, automatic: bool = False, rank: int = 0) -> None:
        self.plan = plan
        self.directory: Path = recording.directory
        self.recording = recording
        self.past = past or Past()
        self.room = Room(plan, recording.directory)
        self.outlets = Outlets(plan, self.directory, rank)
        self.moment = Moment(rank)
        self.schedule = Schedule(rank)
        spec = plan.loaded.spec
        self.timeline = Timeline(
            self.moment, self.schedule, self, rule=spec.clock.step, epoch_steps=spec.clock.epoch_steps, automatic=automatic
        )
        self.timeline.go_on(self.past.next_epoch, self.past.steps)
        self.live = Live(plan, self.moment, self.schedule, self._failed)
        self.watch = self.live.watch
        self.accumulations = Accumulations(self.live)
        self.entry = Entry(plan.trees, self.moment, self._called, self._leaves)
        self.moment.stray = self._strays
        self.accounts: dict[int, list[Account]] = {}
        self.failure: ProbesError | None = None
        self.stopped = ""
        self.fatal = False
        self.limited = ""
        self._bounded = spec.limits.bytes_per_epoch is not None
        self._owned = self._parameters()
        self._pid = os.getpid()
        self._tick: Any = None
        self._entered = False
        self._nested = False

    # The loop's side

    def __enter__(self) -> Run:
        self.live.stand()
        self.entry.start()
        self._tick = register_optimizer_step_post_hook(self._optimizer_stepped)
        self.watch.start(self._before_optimizer)
        self._entered = True
        follow(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """End the run: the open epoch is closed and sealed, and every hook comes off the model.

        Args:
            error: what ended the loop early, if anything did; the step that was open is then dropped.

        Raises:
            RunError: the loop ended well, but the spec was not satisfied.
        """
        if not self._entered or os.getpid() != self._pid:
            return
        self._entered = False
        self.detach()
        try:
            self.timeline.end_epoch(complete=error is None, reason=_reason(error))
            self.recording.drain(None if error is None or isinstance(error, Stopped) else EXIT_SECONDS)
            self._unsealed()
        finally:
            self.outlets.close()
            self.live.remove()
            release(self.directory, self.recording.rank)
        if error is None:
            self._judge()

    def _unsealed(self) -> None:
        for failure in self.recording.sealer.failures:
            text = f"'{self.directory / failure.journal}' could not be sealed: {failure.message}"
            self.failure = self.failure or StorageError(f"{text}; it is kept: `probes recover {self.directory}`")

    def detach(self) -> None:
        """Stop watching the model's calls and the optimizers."""
        self.entry.stop()
        self.watch.stop()
        if self._tick is not None:
            self._tick.remove()
            self._tick = None

    def _judge(self) -> None:
        failure = self.failure or self.watch.error
        if failure is not None:
            raise failure
        problems = verdicts(self)
        if problems:
            raise RunError("\n".join(str(problem) for problem in problems))

    def go_inert(self) -> None:
        """Stop capturing, in a process that was forked from that of the run."""
        self.detach()
        self.schedule.close()
        self.moment.writer = self.recording.journal = None
        self.timeline.listener = Deaf()

    @property
    def next_epoch(self) -> int:
        """The epoch to go on with: 0, or in a run that was resumed the first that did not come to its end."""
        return self.timeline.next_epoch

    def epochs(self, count: int, start: int | None = None) -> Iterator[int]:
        """Iterate over epochs `start` to `count - 1`; each ends when the next begins or the iteration is over.

        Args:
            count: epochs of the whole training.
            start: the first; by default `next_epoch`.
        """
        for epoch in range(self.next_epoch if start is None else start, count):
            self.timeline.begin_epoch(epoch)
            yield epoch
            self.timeline.end_epoch()
            self.raise_pending()

    @contextmanager
    def epoch(self, index: int) -> Iterator[int]:
        """One epoch; an exception in its body leaves it incomplete."""
        self.timeline.begin_epoch(index)
        try:
            yield index
        except BaseException as error:
            self.timeline.end_epoch(complete=False, reason=_reason(error))
            raise
        self.timeline.end_epoch()
        self.raise_pending()

    def steps(self, batches: Iterable[Any], accumulate: int = 1, ids: Ids | None = None) -> Iterator[Any]:
        """Iterate over batches, each a step; with `accumulate=n` a step is n batches.

        Args:
            batches: what the loop iterates over, such as a DataLoader.
            accumulate: batches that make one step.
            ids: gives the sample ids of a batch; they are stored beside the captures.
        """
        known: list[Any] = []
        for index, batch in enumerate(batches):
            if index % accumulate == 0:
                self.timeline.begin_item()
                self.raise_pending()
                known = []
            if ids is not None:
                known += list(ids(batch))
                self.timeline.set_ids(known)
            yield batch
        self.timeline.end_step()
        self.raise_pending()

    @contextmanager
    def step(self, ids: Sequence[Any] = ()) -> Iterator[None]:
        """One step; it is committed when its body ends, and dropped when that raises."""
        self.timeline.begin_item(list(ids))
        try:
            yield
        except BaseException:
            self.timeline.end_step(keep=False)
            raise
        self.timeline.end_step()
        self.raise_pending()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name the phase of the calls in the body; in any phase but `train` every outermost call is a step."""
        self.timeline.name(name)
        try:
            yield
        finally:
            self.timeline.unname()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Take every hook off the model for the body, and put them back: for `torch.jit.script`, tracing and export.

        What the model does in the body is not captured and moves no clock.
        """
        self.entry.stop()
        self.live.remove()
        try:
            yield
        finally:
            self.live.stand()
            if self.timeline.epoch is not None and self.moment.writer is not None:
                self.live.register(self.timeline.epoch)
            self.entry.start()

    def edit(self, probe: str, target: str | None = None) -> Mapping[str, Tensor]:
        """What an edit drew when it was applied last, such as `permutation` and `lam` of a mixup.

        Args:
            probe: name of the probe.
            target: its target, where it has several.

        Returns:
            Tensors on the host by name; empty for an edit that draws nothing.

        Raises:
            UsageError: there is no such edit, or it has several targets.
        """
        editors = self.live.editors.get(probe, {})
        wanted = {target: editors[target]} if target in editors else editors if target is None else {}
        if len(wanted) != 1:
            known = ", ".join(f"`{name}` on `{place}`" for name, places in self.live.editors.items() for place in places)
            raise UsageError(
                f"edit('{probe}'{f', {target!r}' if target is not None else ''}) names {len(wanted)} edits; there are: {known or 'none'}"
            )
        return MappingProxyType(next(iter(wanted.values())).drawn)

    def summary(self) -> Summary:
        """What was captured so far, as a table; `str()` of it is for people, `.as_dict()` for programs."""
        return Summary(self)

    # The model's side

    def _called(self, root: Module) -> None:
        self.halt()
        self._enters(root)

    def halt(self) -> None:
        """End the open step and stop training, where a trigger says so.

        Raises:
            Stopped: it does.
        """
        if self.watch.halts and self._entered:
            self.timeline.end_step()
            self.watch.raise_stopped()

    def _before_optimizer(self, optimizer: Optimizer, *_args: object) -> None:
        if self.owns(optimizer):
            self.halt()  # before what is not finite gets into the weights

    def _enters(self, root: Module) -> None:
        self.timeline.enter(phase_of(root))
        if self.moment.microstep == 0 and self.moment.open:
            for tap in self.live.data:
                tap.on_data()

    def _leaves(self) -> None:
        if self.live.late:
            self.live.bind_late()
        self.live.pick_up()
        self.timeline.leave()

    def boundary(self) -> None:
        """Capture what a compiled function left: its calls of the model are not seen, so they count as one outermost call."""
        if self.live.waiting and not self.moment.inside:
            self.moment.inside = True
            self._enters(self._clock_trees()[0].root.module)
            self._leaves()
            self.moment.inside = False

    def _strays(self, target: str) -> bool:
        seen = self.entry.stray(target)
        if seen:
            self.timeline.strayed()
        return seen

    def _optimizer_stepped(self, optimizer: Optimizer, *_args: object) -> None:
        if self.owns(optimizer):
            self.ticked(optimizer)

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer steps a parameter of the clock's model."""
        return any(id(parameter) in self._owned for group in optimizer.param_groups for parameter in group["params"])

    def ticked(self, optimizer: Optimizer) -> None:
        """An optimizer of the clock's model has stepped: its gradients are final."""
        self.boundary()
        owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for tap in self.live.finals:
            if id(tap.tensor) in owned:
                tap.on_final()
        self.timeline.tick()
        self.halt()

    def _parameters(self) -> set[int]:
        return {id(parameter) for tree in self._clock_trees() for parameter in tree.model.parameters()}

    def _clock_trees(self) -> list[Any]:
        name = self.plan.loaded.spec.clock.model
        return [self.plan.trees[name]] if name else list(self.plan.trees.values())

    # What the timeline tells

    def epoch_begins(self, epoch: int) -> None:
        """Open the journal, the books and the hooks of an epoch."""
        self.accounts[epoch] = self.live.open_books()
        if not self.stopped:
            with self._storage():
                starts = dict(self.timeline.totals)
                self.moment.writer = self.outlets.over(self.recording.open(epoch, starts), epoch, starts)
                self.live.register(epoch)
                self._owned = self._parameters()
                self.entry.rehang()

    def epoch_ends(self, epoch: int, complete: bool, reason: str) -> None:
        """Close the books and hand the journal to the sealer."""
        self.live.rest()
        self.live.verify()
        self.live.settle()
        if self.moment.writer is not None:
            self.accumulations.end_epoch()
            self._commit(self.moment.phase, self.moment.step, True, {})  # and what came after its step was over
        self.moment.writer = None
        with self._storage():
            reason = reason or self.stopped or self.limited
            self.recording.close(complete and not reason, reason, closing(self, epoch))
        self.limited = ""

    def step_pauses(self) -> None:
        """Keep the open step's books aside while a step of another phase runs within it."""
        self._nested = True
        for tap in self.live.taps:
            tap.account.pause()

    def step_resumes(self) -> None:
        """Go on with the books of the step around."""
        self._nested = False
        for tap in self.live.taps:
            tap.account.resume()

    def step_ends(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        """Commit a step, or drop it."""
        self.live.end_step()
        if self.accumulations.taps:
            self.accumulations.end_step(phase, step, keep)
        self._commit(phase, step, keep, annex)
        if not self.room.asked and keep:
            self._ask_for_room()
        if self.recording.segment_steps and self.recording.is_full() and not self._nested:
            self._roll()

    def _commit(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        journal = self.recording.journal
        if journal is None or self.stopped:
            self.watch.end_step(None, phase, step, keep)
            return
        try:
            if not keep:
                journal.abort()
                self.outlets.end_step(False)
            keep = self.watch.end_step(self.moment.writer, phase, step, keep) or keep
            if keep and (annex or journal.pending):  # a step of which nothing is stored is counted in the closing alone
                journal.commit(phase, step, self.timeline.totals[phase] + step, annex)
        except StorageError as error:
            self._stop(error)
        if self.outlets.sinks:
            self.failure = self.failure or self.outlets.end_step(keep and not self.stopped)
        if self._bounded:
            self._within_limit()

    def _roll(self) -> None:
        """Go on with the epoch in another file."""
        writing, self.moment.writer = self.moment.writer is not None, None
        with self._storage():
            journal = self.recording.roll()
            if writing:
                self.moment.writer = self.outlets.over(journal, self.moment.epoch, dict(self.timeline.totals))

    def _ask_for_room(self) -> None:
        """Stop the program at its first captures, and not hours later, where the disk cannot take an epoch."""
        journal = self.recording.journal
        if journal is None or not journal.captures:
            return
        try:
            self.room.after(self.accounts[self.moment.epoch])
        except StorageError as error:
            self._stop(error)
            self.fatal = True

    def _within_limit(self) -> None:
        """Stop capturing for this epoch once its byte limit is reached."""
        limits = self.plan.loaded.spec.limits
        taken = sum(account.nbytes for account in self.accounts[self.moment.epoch]) if limits.bytes_per_epoch else 0
        if limits.bytes_per_epoch is None or taken < limits.bytes_per_epoch or self.moment.writer is None:
            return
        text = f"epoch {self.moment.epoch} reached its limit of {limits.bytes_per_epoch} bytes at step {self.moment.step}"
        if limits.on_limit == "raise" and self.failure is None:
            self.failure = RunError(f"{text} (`limits.bytes_per_epoch`)")
        for account in self.accounts[self.moment.epoch]:
            account.skip("limit")
        self.limited = text
        self.live.rest()
        self.moment.writer = None

    # Failures

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """A disk that fails stops the captures; training goes on unless the spec says otherwise."""
        try:
            yield
        except StorageError as error:
            self._stop(error)

    def _stop(self, error: ProbesError) -> None:
        self.stopped = self.stopped or str(error)
        self.failure = self.failure or error
        self.live.rest()
        self.moment.writer = None

    def _failed(self, tap: Tap, error: Exception) -> None:
        if isinstance(error, StorageError):
            self._stop(error)
            return
        binding = self.plan.bindings[self.live.taps.index(tap)]
        tap.broken = True
        tap.account.skip("failed")
        text = f"probe `{binding.name}` on `{binding.target}` failed in epoch {self.moment.epoch} step {self.moment.step}: {error}"
        tap.account.error = text
        if self.plan.loaded.spec.on_error == "raise" and self.failure is None:
            self.failure = RunError(text)

    def raise_pending(self) -> None:
        """Raise what went wrong in a hook, where the spec says `on_error: raise` or it is too early to go on without captures."""
        self.halt()
        if self.failure is None:
            return
        spec = self.plan.loaded.spec
        if self.fatal or "raise" in (spec.on_error, spec.limits.on_limit):
            failure, self.failure = self.failure, None
            raise failure


def _reason(error: BaseException | None) -> str:
    """Why an epoch did not come to its end; empty where it did."""
    if error is None:
        return ""
    return "stopped by a trigger" if isinstance(error, Stopped) else f"exception: {type(error).__name__}"
