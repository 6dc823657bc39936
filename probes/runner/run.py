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

from probes.errors import RunError, Stopped, UsageError
from probes.hooks.capture.account import Account
from probes.hooks.capture.model_copies import clean_copies
from probes.hooks.capture.run_state import RunState
from probes.plan import Plan
from probes.run_directory.claim import release
from probes.run_directory.recording import Recording
from probes.run_directory.resume import PreviousAttempts
from probes.runner.entry import Entry, phase_of
from probes.runner.forks import follow
from probes.runner.ids import plain_ids
from probes.runner.keeper import Keeper
from probes.runner.schedule import Schedule
from probes.runner.summary import Summary, verdicts
from probes.runner.timeline import Deaf

EXIT_SECONDS = 1.5  # how long a program that is interrupted waits for the sealer, which then goes on by itself

Ids = Callable[[Any], Sequence[Any]]


class Run:
    """A model with probes attached. Use it as a context manager; leaving it takes every hook off the model.

    Attributes:
        plan: what the spec came to on this model.
        directory: where the files are.
        timeline: the run's clock.
    """

    def __init__(
        self, plan: Plan, recording: Recording, past: PreviousAttempts | None = None, *, automatic: bool = False, rank: int = 0
    ) -> None:
        self.plan = plan
        self.directory: Path = recording.directory
        self.recording = recording
        self.past = past or PreviousAttempts()
        self.moment = RunState(rank)
        self.schedule = Schedule(rank)
        clock = plan.loaded.spec.clock
        self.keeper = Keeper(
            plan,
            recording,
            self.moment,
            self.schedule,
            self._epoch_opens,
            self.boundary,
            rule=clock.step,
            epoch_steps=clock.epoch_steps,
            automatic=automatic,
        )
        self.timeline = self.keeper.timeline
        self.timeline.go_on(self.past.next_epoch, self.past.steps)
        self.live = self.keeper.live
        self.watch = self.keeper.watch
        self.entry = Entry(self.live.trees, self.moment, self._called, self._leaves)
        self.moment.stray = self._strays
        self._owned = self._parameters()
        self._pid = os.getpid()
        self._tick: Any = None
        self._entered = False

    def __repr__(self) -> str:
        return f'<Run "{self.directory}">'

    # The loop's side

    def __enter__(self) -> Run:
        clean_copies.start()
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
        interrupted = error is not None and not isinstance(error, Stopped)
        if interrupted:
            self.recording.sealer.hurry()
        try:
            self.timeline.end_epoch(complete=error is None, reason=_reason(error))
            self.recording.drain(EXIT_SECONDS if interrupted else None)
            self.keeper.look_for_unsealed()
        finally:
            self.keeper.sink_sessions.close()
            self.live.remove()
            clean_copies.stop()
            release(self.directory, self.recording.rank)
        if error is None:
            self._judge()

    def detach(self) -> None:
        """Stop watching the model's calls and the optimizers."""
        self.entry.stop()
        self.watch.stop()
        if self._tick is not None:
            self._tick.remove()
            self._tick = None

    def _judge(self) -> None:
        failure = self.keeper.failure or self.watch.error
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
    def accounts(self) -> dict[int, list[Account]]:
        """The books of every epoch, one for each binding of the plan."""
        return self.keeper.accounts

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
                known += plain_ids(ids(batch))
                self.timeline.set_ids(known)
            yield batch
        self.timeline.end_step()
        self.raise_pending()

    @contextmanager
    def step(self, ids: Sequence[Any] = ()) -> Iterator[None]:
        """One step; it is committed when its body ends, and dropped when that raises."""
        self.timeline.begin_item(plain_ids(ids))
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
        """The gradients of its parameters are final; where it steps the clock's model, the clock hears of it."""
        owns = self.owns(optimizer)
        if owns:
            self.boundary()
        if self.moment.open:
            held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            for tap in self.live.finals:
                if id(tap.tensor) in held:
                    tap.on_final()
        if owns:
            self.timeline.tick()
            self.halt()

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer steps a parameter of the clock's model."""
        return any(id(parameter) in self._owned for group in optimizer.param_groups for parameter in group["params"])

    def _parameters(self) -> set[int]:
        return {id(parameter) for tree in self._clock_trees() for parameter in tree.model.parameters()}

    def _clock_trees(self) -> list[Any]:
        name = self.plan.loaded.spec.clock.model
        return [self.live.trees[name]] if name else list(self.live.trees.values())

    def raise_pending(self) -> None:
        """Raise what went wrong in a hook, where the spec says `on_error: raise` or it is too early to go on without captures."""
        self.halt()
        failure = self.keeper.due_failure
        if failure is not None:
            self.keeper.failure = None
            raise failure

    def _epoch_opens(self) -> None:
        self._owned = self._parameters()
        self.entry.rehang()


def _reason(error: BaseException | None) -> str:
    """Why an epoch did not come to its end; empty where it did."""
    if error is None:
        return ""
    return "stopped by a trigger" if isinstance(error, Stopped) else f"exception: {type(error).__name__}"
