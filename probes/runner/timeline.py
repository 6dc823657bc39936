"""The run's clock: what an epoch, a step and a microstep are, and when a step is committed.

Explicit steps (`run.steps`, `run.step`) win. Without them a step of phase `train` ends as `clock.step` says, and in any
other phase every outermost call is a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from probes.errors import UsageError
from probes.hooks.capture.run_state import RunState
from probes.runner.schedule import Schedule


class Listener(Protocol):
    """What the timeline tells of: epochs and steps that begin and end."""

    def epoch_begins(self, epoch: int) -> None:
        """An epoch opens."""

    def epoch_ends(self, epoch: int, complete: bool, reason: str) -> None:
        """An epoch is over."""

    def boundary(self) -> None:
        """A step may be about to end."""

    def step_pauses(self) -> None:
        """A step of another phase is about to open within the one that is open."""

    def step_resumes(self) -> None:
        """That step is over; the one around it goes on."""

    def step_ends(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        """A step is over; it is committed, or dropped where its body raised."""


class Deaf:
    """A listener that does nothing with what it is told."""

    def epoch_begins(self, epoch: int) -> None:
        """Nothing."""

    def epoch_ends(self, epoch: int, complete: bool, reason: str) -> None:
        """Nothing."""

    def boundary(self) -> None:
        """Nothing."""

    def step_pauses(self) -> None:
        """Nothing."""

    def step_resumes(self) -> None:
        """Nothing."""

    def step_ends(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        """Nothing."""


@dataclass(slots=True)
class Step:
    """A step that is open.

    Attributes:
        phase: its phase; empty for an explicit step before its first outermost call.
        index: step within (epoch, phase).
        microstep: outermost calls so far, minus one.
        single: whether it is over when its outermost call is: every call of a phase other than `train`.
        item: whether the loop opened it itself.
        ids: sample ids, where the loop gave them.
        unseen: whether nobody sees its call return.
    """

    phase: str
    index: int = 0
    microstep: int = -1
    single: bool = False
    item: bool = False
    ids: list[Any] = field(default_factory=list)
    unseen: bool = False


class Timeline:
    """Moves the moment: the state machine behind `run.epochs`, `run.steps`, `run.phase` and the model's own calls.

    Args:
        moment: what the hooks see; only the timeline writes to its clock.
        schedule: the gates.
        listener: is told of epochs and steps.
        rule: what ends a step of phase `train` that the loop does not open itself: `optimizer`, `batch` or `forward`.
        epoch_steps: training steps of an epoch, where the spec says so.
        automatic: whether epochs open by themselves, as around a script.
    """

    def __init__(
        self,
        moment: RunState,
        schedule: Schedule,
        listener: Listener,
        *,
        rule: str = "optimizer",
        epoch_steps: int | None = None,
        automatic: bool = False,
    ) -> None:
        self.moment = moment
        self.schedule = schedule
        self.listener = listener
        self.rule = rule
        self.epoch_steps = epoch_steps
        self.automatic = automatic
        self.epoch: int | None = None
        self.next_epoch = 0
        self.implicit = False
        self.named: list[str] = []
        self.step: Step | None = None
        self.outer: Step | None = None
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.outside = 0
        self._begun = False
        self._earlier: dict[int, Mapping[str, int]] = {}
        self.ticked = False
        self.has_loader = False

    # Epochs

    def begin_epoch(self, epoch: int, *, implicit: bool = False) -> None:
        """Open an epoch; the one that is open ends. An implicit one was opened by a step or call, not by the loop.

        Raises:
            UsageError: the epoch is not later than the last one.
        """
        self.end_epoch()
        if epoch < self.next_epoch and self._begun:
            raise UsageError(f"epoch {epoch} is over; the next one is {self.next_epoch}: epochs are numbered upwards")
        self._begun = True
        self._catch_up(epoch)
        self.epoch = self.moment.epoch = epoch
        self.implicit = implicit
        self.next_epoch = epoch + 1
        self.counts.clear()
        self.listener.epoch_begins(epoch)
        self.idle()

    def go_on(self, epoch: int, steps: Mapping[int, Mapping[str, int]]) -> None:
        """Go on with a run that was begun before.

        Args:
            epoch: the next one; the loop may name another.
            steps: steps by phase of every epoch there was.
        """
        self.next_epoch = epoch
        self._earlier = dict(steps)

    def _catch_up(self, epoch: int) -> None:
        """Count the steps of the epochs before one that earlier starts of the run came through."""
        for before in sorted(self._earlier):
            counts = self._earlier.pop(before)
            if before < epoch:
                self.totals.update(counts)

    def end_epoch(self, *, complete: bool = True, reason: str = "") -> None:
        """Close the epoch that is open, if any."""
        if self.epoch is None:
            return
        self.end_step(keep=complete)
        epoch, self.epoch = self.epoch, None
        self.moment.microstep = -1
        self.schedule.close()
        self.listener.epoch_ends(epoch, complete, reason)
        self.totals.update(self.counts)
        self.counts.clear()

    # Steps

    def begin_item(self, ids: list[Any] | None = None) -> None:
        """Open a step that the loop names itself; its phase is that of its first outermost call."""
        self.end_step()
        if self.epoch is None:
            self.begin_epoch(self.next_epoch, implicit=True)
        self.roll()
        self.step = Step(self.named[-1] if self.named else "", item=True, ids=list(ids or ()))
        self.moment.named = True

    def set_ids(self, ids: list[Any]) -> None:
        """Give the open step the ids of its samples."""
        if self.step is not None:
            self.step.ids = list(ids)

    def end_step(self, *, keep: bool = True) -> None:
        """Close the step that is open, if any, and one nested in it whose call never returned."""
        self.listener.boundary()
        if self.outer is not None:
            self.end_single(keep=keep)
        step, self.step = self.step, None
        self.moment.named = False
        if step is None:
            return
        if step.microstep >= 0:
            self.listener.step_ends(step.phase, step.index, keep, {"ids": step.ids} if step.ids else {})
        elif not keep:
            self.listener.step_ends(self.moment.phase, self.moment.step, False, {})
        self.idle()

    def end_single(self, *, keep: bool = True) -> None:
        """Close a step that is one call, and go on with the step it was nested in."""
        step, self.step = self.step, None
        outer, self.outer = self.outer, None
        if step is not None:
            self.listener.step_ends(step.phase, step.index, keep, {})
        if outer is not None:
            self.listener.step_resumes()
            self.resume(outer)
        else:
            self.idle()

    def open(self, step: Step) -> None:
        """Number a step, set the moment to it and open its gates."""
        step.index = self.counts[step.phase]
        self.counts[step.phase] += 1
        self.moment.step_number += 1
        self.resume(step)

    def resume(self, step: Step) -> None:
        """Make a numbered step the current one."""
        self.step = step
        if not step.phase:
            return
        moment = self.moment
        moment.phase, moment.step, moment.microstep = step.phase, step.index, step.microstep
        moment.open = True
        self.schedule.open_step(self.epoch or 0, step.phase, step.index)

    def idle(self) -> None:
        """Between steps."""
        self.moment.open = False
        self.moment.microstep = -1
        if self.epoch is None:
            self.schedule.close()
        else:
            self.schedule.wait()

    # What the model and the loop do

    def enter(self, phase: str) -> None:
        """An outermost call begins.

        Args:
            phase: `train` where the model trains and gradients are on, else `eval`; a named phase wins.
        """
        phase = self.named[-1] if self.named else phase
        if self.epoch is None:
            if not self.automatic:
                self.outside += 1
                return
            self.begin_epoch(self.next_epoch, implicit=True)
        step = self.step
        if step is not None and step.single:
            self.end_single(keep=step.unseen)  # its call raised, unless nobody could see it return
            step = self.step
        if step is not None and self.over(step, phase):
            self.end_step()
            step = None
        if step is None and phase == "train":
            self.roll()
        if step is None or (step.phase and step.phase != phase):
            self.outer = step
            if step is not None:
                self.listener.step_pauses()
            self.open(Step(phase, single=phase != "train"))
        elif not step.phase:
            step.phase = phase
            self.open(step)
        step = self.step
        if step is None:
            raise AssertionError("BUG: an outermost call without a step")
        step.microstep += 1
        self.moment.microstep = step.microstep
        self.moment.outermost_call += 1

    def over(self, step: Step, phase: str) -> bool:
        """Whether a call of `phase` is the first after the open step."""
        if step.item:
            return False
        if phase != "train":
            return self.ticked
        return self.rule == "forward" or (self.rule == "optimizer" and self.ticked and not self.has_loader)

    def roll(self) -> None:
        """Begin the next epoch where the spec counts its steps and a training step is about to begin."""
        self.ticked = False
        if self.implicit and self.epoch_steps and self.counts["train"] >= self.epoch_steps:
            self.begin_epoch(self.next_epoch, implicit=True)

    def leave(self) -> None:
        """The outermost call has returned."""
        if self.step is not None and self.step.single:
            self.end_single()

    def strayed(self) -> None:
        """The outermost call was noticed after it had begun, so nobody will see it return."""
        if self.step is not None:
            self.step.unseen = True

    def tick(self) -> None:
        """An optimizer of the clock's model has stepped, or a GradScaler skipped it."""
        self.ticked = True

    def pulled(self) -> None:
        """The training loader was asked for the next batch."""
        self.has_loader = True
        step = self.step
        if step is not None and not step.item and (self.rule == "batch" or (self.rule == "optimizer" and self.ticked)):
            self.end_step()

    def pass_begins(self) -> None:
        """The training loader starts anew: an epoch of a script is over, unless the spec counts steps."""
        if self.epoch is not None and self.epoch_steps is None and self.counts["train"]:
            self.end_epoch()

    def name(self, phase: str) -> None:
        """Enter a phase that the loop names."""
        self._boundary()
        self.named.append(phase)

    def unname(self) -> None:
        """Leave the phase that was named last."""
        self._boundary()
        self.named.pop()

    def _boundary(self) -> None:
        self.listener.boundary()
        if self.step is not None and not self.step.item:
            self.end_step()
