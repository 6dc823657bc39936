"""Triggers: captures wait in memory, and are written once a value is not finite, or a number of it is beyond bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from probes.clock import SeriesKey
from probes.component import Transform
from probes.errors import Stopped
from probes.hooks.capture.account import Account
from probes.hooks.capture.condition_check import ConditionCheck, UnusualNumber
from probes.hooks.capture.recorder import PLAIN, Offer, Recorder
from probes.hooks.capture.run_state import CaptureClock, CaptureWriter, RunState
from probes.hooks.capture.shard import WHOLE
from probes.plan import Binding, Plan, Tree
from probes.printable import counted
from probes.runner.failures import Failures
from probes.runner.triggers.event import ThresholdEvent, TriggerEvent
from probes.runner.triggers.nonfinite import NonfiniteEvent, is_finite, numbers
from probes.runner.triggers.nonfinite_source import SourceWatch, bad_tensors
from probes.runner.triggers.trigger_buffer import TriggerBuffer, TriggerWriter
from probes.runner.watch.grad_scaler import scaler_watch
from probes.runner.watch.process_hooks import optimizer_begins

NO_EVENT = {"nonfinite": "finite", "threshold": "within its bounds"}
CommonFields = Callable[[], dict[str, Any]]


class Place(NamedTuple):
    """The place of a value of a binding."""

    leaf: str
    call: int
    backward: int


class TriggerWatch:
    """The triggers of a run: one event writes the waiting captures of all probes that have a trigger.

    A gradient counts once it is known not to be an overflow of a loss scale: if a GradScaler is in use, a gradient in a step
    that it skips is dismissed.

    Args:
        plan: the plan; its probes name their triggers.
        moment: the run's clock.
        trees: the module trees as they are now.
        failures: where an event that stops the training is put.

    Attributes:
        buffer: the captures that wait.
        sources: which values of the open step are finite.
        found: the first value of the open step that fires them.
        suspect: a gradient that does, in a step that a GradScaler has not checked yet.
        dismissed: gradients in steps that a GradScaler skipped.
        events: the values that fired the triggers, and what was written.
        quiet: whether no value of the last step would fire; the triggers fire in the first step after it that has one.
        scaled: whether a GradScaler has scaled a loss, so gradients may be scaled.
    """

    def __init__(self, plan: Plan, moment: RunState, trees: Mapping[str, Tree], failures: Failures) -> None:
        self.failures = failures
        self.plan = plan
        self.trees = trees
        self.moment = moment
        probes = plan.loaded.spec.probes
        self.triggers = {name: one.when.trigger for name, one in probes.items() if one.enabled and one.when.trigger is not None}
        room = plan.loaded.spec.limits.buffer_bytes
        before = {name: trigger.before for name, trigger in self.triggers.items()}
        self.buffer = TriggerBuffer(moment, before, room if room is not None else 1 << 62)
        self.sources = SourceWatch(trees)
        self.scaled = False
        self.found: TriggerEvent | None = None
        self.suspect: TriggerEvent | None = None
        self.dismissed: list[TriggerEvent] = []
        self.events: list[tuple[TriggerEvent, dict[str, int]]] = []
        self.quiet = True
        self.looked = False
        self._step: Callable[[], None] | None = None
        self._reported = 0

    def listen(self, before_optimizer: Callable[..., None]) -> None:
        """Observe the optimizers, and the scalers if a gradient may fire a trigger.

        Args:
            before_optimizer: called before the step of any optimizer.
        """
        self._step = optimizer_begins.add(before_optimizer)
        if any(binding.name in self.triggers and _is_gradient(binding) for binding in self.plan.bindings):
            scaler_watch.add(self)

    def leave(self) -> None:
        """Stop observing."""
        scaler_watch.remove(self)
        if self._step is not None:
            self._step()
            self._step = None

    # In the hooks

    def look(self, binding: Binding, make: Callable[[CommonFields], TriggerEvent | None], at: CaptureClock, place: Place) -> None:
        """Check whether a value fires the triggers; only the first such value of a step counts.

        Args:
            binding: whose value it is.
            make: the event of the value, from the fields that say where it is; None if it fires nothing.
            at: the clock of the value.
            place: its leaf, call and backward.
        """
        self.looked = True
        scaled = self.scaled and _is_gradient(binding)
        finding = make(partial(self._fields, binding, at, place))
        if finding is None or self.found is not None or (scaled and self.suspect is not None):
            return
        if scaled:
            self.suspect = finding
        else:
            self.found = finding

    def found_elsewhere(
        self, probe: str, number: UnusualNumber, recorder: Recorder | None, at: CaptureClock, call: int, backward: int
    ) -> None:
        """A number of another series, or of the loop, fires the trigger of a probe.

        Args:
            probe: the probe.
            number: the number.
            recorder: that of the series; None for a value of the loop.
            at: the clock of the number.
            call: its call.
            backward: its backward.
        """
        trigger = self.triggers[probe]
        key = recorder.key if recorder is not None else SeriesKey(probe, "", f"loop.{trigger.loop}", at.phase)
        source = next((one for one in self.plan.bindings if (one.name, one.target) == (key.probe, key.target)), None)
        binding = source or next(one for one in self.plan.bindings if one.name == probe)
        fields = {**self._fields(binding, at, Place(key.leaf, call, backward), trigger.then), "probe": probe, "target": key.target}
        mean, deviation = ("" if one is None else f"{one:.6g}" for one in (number.mean, number.deviation))
        event = ThresholdEvent(**fields, number=f"{number.number:.6g}", bounds=" and ".join(trigger.bounds), mean=mean, deviation=deviation)
        self.look(binding, lambda _: event, at, Place(key.leaf, call, backward))

    def _fields(self, binding: Binding, at: CaptureClock, place: Place, then: str = "") -> dict[str, Any]:
        """The fields that events of every kind have."""
        return {
            "probe": binding.name,
            "model": binding.model,
            "target": binding.target,
            "leaf": place.leaf,
            "kind": binding.kind,
            "epoch": at.epoch,
            "phase": at.phase,
            "step": at.step,
            "microstep": at.microstep,
            "call": place.call,
            "backward": place.backward,
            "rank": self.moment.rank,
            "then": then or self.triggers[binding.name].then,
        }

    def settled(self, binding: Binding) -> bool:
        """Whether the open step can fire nothing more for a binding."""
        return self.found is not None or (self.suspect is not None and self.scaled and _is_gradient(binding))

    def own_tensors(self, binding: Binding) -> tuple[str, ...]:
        """Names of the parameters and buffers of a binding's module that are not finite; none for a parameter itself."""
        return () if binding.hook == "tensor" else tuple(bad_tensors(self.trees[binding.model].nodes[binding.module].module))

    # Events of GradScalers

    def scaler_scaled(self, scaler: GradScaler, losses: Any) -> None:
        """Gradients may be scaled from now on."""
        self.scaled = True

    def scaler_stepped(self, scaler: GradScaler, optimizer: Any, *, skipped: bool) -> None:
        """Count the gradient that waits as an overflow of the loss scale, if the scaler found one."""
        if self.suspect is None or not scaler.is_enabled():  # reading more would wait for the device
            return
        if any(found.item() for found in scaler._found_inf_per_device(optimizer).values()):
            self.dismissed.append(self.suspect)
            self.suspect = None

    def scaler_updated(self, scaler: GradScaler) -> None:
        """Fire the triggers for the waiting gradient: the scaler found no overflow."""
        if scaler.is_enabled():
            self.found, self.suspect = self.found or self.suspect, None

    # At the ends of steps and epochs

    @property
    def halts(self) -> bool:
        """Whether the open step has an event that stops the training."""
        return self.found is not None and self.quiet and self.found.then == "stop"

    def end_step(self, writer: CaptureWriter | None, phase: str, step: int, keep: bool) -> bool:
        """Write the waiting captures if the step had an event.

        Args:
            writer: the journal; None if the run captures no more.
            phase: phase of the step.
            step: its number.
            keep: whether its body did not raise; an event is written even where it did.

        Returns:
            Whether captures were written that need a commit.
        """
        found, self.found = self.found, None
        fires = found is not None and self.quiet
        if self.looked:
            self.sources.end_step()
            self.quiet, self.looked = found is None, False
        written = {}
        if found is not None and fires:
            written = self.buffer.write_out(writer, phase, step) if writer is not None else {}
            self.events.append((found, written))
            if found.then == "stop":
                self.failures.halt = self.failures.halt or Stopped(f"{found}; stopped by the trigger of probe `{found.probe}`")
        self.buffer.end_step(keep or fires, age=self.suspect is None)
        return bool(written)

    def end_epoch(self, epoch: int) -> dict[str, Any]:
        """The events of an epoch, for its file."""
        self.buffer.end_epoch()
        events = [{**found.as_dict(), **written} for found, written in self.events[self._reported :]]
        self._reported = len(self.events)
        dismissed = [one.as_dict() for one in self.dismissed if one.epoch == epoch]
        return {"events": events, "dismissed": len(dismissed), **({"first_dismissed": dismissed[0]} if dismissed else {})}

    def notes(self) -> list[str]:
        """Lines for the summary."""
        lines = [_event_text(found, written) for found, written in self.events]
        if self.dismissed:
            first = self.dismissed[0]
            lines.append(
                f"{len(self.dismissed)} gradients overflowed in steps that GradScaler skipped; the first: {first.where}, {first.when}"
            )
        if self.suspect is not None:
            lines.append(f"undecided, because no `GradScaler.update()` followed: {self.suspect}")
        if not lines:
            kinds = {trigger.kind for trigger in self.triggers.values()}
            lines.append("no trigger fired: every value that was checked is " + " and ".join(NO_EVENT[kind] for kind in sorted(kinds)))
        return lines


class TriggeredRecorder(Recorder):
    """A recorder whose captures wait for a trigger."""

    __slots__ = ("binding", "check", "elsewhere", "filtered", "waiting_writer", "watch")

    counts = False  # a capture is counted when the trigger writes it

    def __init__(
        self,
        watch: TriggerWatch,
        binding: Binding,
        leaf: str,
        account: Account,
        transforms: Sequence[Transform],
        dims: tuple[str, ...] | None,
        attrs: dict[str, object],
    ) -> None:
        super().__init__(binding.key(leaf), watch.moment, account, transforms, dims, attrs)
        self.watch = watch
        self.binding = binding
        self.waiting_writer = TriggerWriter(watch.buffer, self)
        self.offer = self.offer_where
        self.filtered: Offer = super().offer_where
        trigger = watch.triggers[binding.name]
        self.elsewhere = trigger.is_elsewhere
        self.check = ConditionCheck(trigger, transforms, dims) if trigger.kind == "threshold" and not trigger.is_elsewhere else None

    @property
    def checks(self) -> list[ConditionCheck]:
        """The conditions on its values: that of the trigger, and `where`."""
        return [one for one in (self.check, self.where) if one is not None] + self.further_conditions

    def filter_by(self, offer: Offer) -> None:
        """Put only captures for which a condition holds; each value is checked for the trigger before."""
        self.filtered = offer

    def writer_for(self, writer: CaptureWriter) -> CaptureWriter:
        """The buffer of the trigger, used instead of the journal."""
        return self.waiting_writer.over(writer)

    def offer_where(self, tensor: Tensor, at: CaptureClock, call: int, backward: int, sharding: Mapping[str, object] = WHOLE) -> None:
        """Check whether a value fires the trigger, independent of `where`, and buffer it."""
        if not self.elsewhere:
            if type(tensor) not in PLAIN:
                tensor, sharding = self.parts.split(tensor)
            make = partial(self._beyond, tensor, at.phase, self.check) if self.check is not None else partial(self._nonfinite, tensor, at)
            self.watch.look(self.binding, make, at, Place(self.key.leaf, call, backward))
        self.filtered(tensor, at, call, backward, sharding)

    def _nonfinite(self, tensor: Tensor, at: CaptureClock, fields: CommonFields) -> TriggerEvent | None:
        watch = self.watch
        if watch.settled(self.binding):
            return None
        if is_finite(tensor):
            watch.sources.saw(self.binding, self.key.leaf, at)
            return None
        tensors, source = watch.own_tensors(self.binding), watch.sources.of(self.binding, at)
        return NonfiniteEvent(**fields(), **numbers(tensor), tensors=tensors, source=source)

    def _beyond(self, tensor: Tensor, phase: str, check: ConditionCheck, fields: CommonFields) -> TriggerEvent | None:
        found = check.find(tensor, phase)
        if found is None:
            return None
        mean, deviation = ("" if one is None else f"{one:.6g}" for one in (found.mean, found.deviation))
        bounds = " and ".join(check.condition.bounds)
        return ThresholdEvent(**fields(), number=f"{found.number:.6g}", bounds=bounds, mean=mean, deviation=deviation)


def _is_gradient(binding: Binding) -> bool:
    return binding.root.startswith("grad")


def _event_text(found: TriggerEvent, written: dict[str, int]) -> str:
    if not written:
        return f"{found}; no captures could be written"
    full = f"; {written['crowded_out']} older captures were dropped before (`limits.buffer_bytes`)" if written["crowded_out"] else ""
    return f"{found}; written: {counted(written['captures'], 'capture')} of {counted(written['steps'], 'step')}{full}"
