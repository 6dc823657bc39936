"""Triggers: captures wait in memory, and are written once a value is not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from probes.component import Transform
from probes.errors import Stopped
from probes.hooks.capture.account import Account
from probes.hooks.capture.recorder import CaptureClock, Recorder
from probes.hooks.capture.run_state import CaptureWriter, RunState
from probes.plan import Binding, Plan, Tree
from probes.runner.triggers.nonfinite import NonfiniteEvent, is_finite, numbers
from probes.runner.triggers.source import SourceWatch, bad_tensors
from probes.runner.triggers.trigger_buffer import TriggerBuffer, TriggerWriter
from probes.runner.watch.grad_scaler import scaler_watch


class TriggerWatch:
    """The triggers of a run: one event writes the waiting captures of all probes that have a trigger.

    A gradient counts once it is known not to be an overflow of a loss scale: where a GradScaler is in use, a gradient in a step
    that it skips is dismissed.

    Args:
        plan: the plan; its probes name their triggers.
        moment: the run's clock.
        trees: the module trees as they are now.

    Attributes:
        buffer: the captures that wait.
        sources: which values of the open step are finite.
        found: the first value of the open step that is not finite.
        suspect: a gradient that is not finite, in a step that a GradScaler has not judged yet.
        dismissed: gradients in steps that a GradScaler skipped.
        events: the values that fired the triggers, and what was written.
        quiet: whether all values of the last step were finite; the triggers fire in the first step after it that has another.
        error: what stops training: the event of a trigger, or a rule that is broken.
        scaled: whether a GradScaler has scaled a loss, so gradients may be scaled.
    """

    def __init__(self, plan: Plan, moment: RunState, trees: Mapping[str, Tree]) -> None:
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
        self.found: NonfiniteEvent | None = None
        self.suspect: NonfiniteEvent | None = None
        self.dismissed: list[NonfiniteEvent] = []
        self.events: list[tuple[NonfiniteEvent, dict[str, int]]] = []
        self.quiet = True
        self.looked = False
        self.error: Stopped | None = None
        self._step: Any = None
        self._reported = 0

    def start(self, before_optimizer: Callable[..., None]) -> None:
        """Observe the optimizers, and the scalers where a gradient may fire a trigger.

        Args:
            before_optimizer: called before the step of any optimizer.
        """
        if self.triggers:
            self._step = register_optimizer_step_pre_hook(before_optimizer)
        if any(binding.name in self.triggers and _is_gradient(binding) for binding in self.plan.bindings):
            scaler_watch.add(self)

    def stop(self) -> None:
        """Stop observing."""
        scaler_watch.remove(self)
        if self._step is not None:
            self._step.remove()
            self._step = None

    # In the hooks

    def look(self, binding: Binding, leaf: str, tensor: Tensor, at: CaptureClock, call: int, backward: int) -> None:
        """Check whether a value is finite; only the first of a step that is not counts.

        Args:
            binding: whose value it is.
            leaf: which leaf of the binding.
            tensor: any shape, dtype and device, owned by the model; only read.
            at: the clock of the value.
            call: call of the module within the outermost call.
            backward: how often this arming has fired before.
        """
        self.looked = True
        scaled = self.scaled and _is_gradient(binding)
        if self.found is not None or (scaled and self.suspect is not None):
            return
        if is_finite(tensor):
            self.sources.saw(binding, leaf, at)
            return
        finding = self._finding(binding, leaf, tensor, at, (call, backward))
        if scaled:
            self.suspect = finding
        else:
            self.found = finding

    def _finding(self, binding: Binding, leaf: str, tensor: Tensor, at: CaptureClock, times: tuple[int, int]) -> NonfiniteEvent:
        module = self.trees[binding.model].nodes[binding.module].module
        trigger = self.triggers[binding.name]
        return NonfiniteEvent(
            probe=binding.name,
            model=binding.model,
            target=binding.target,
            leaf=leaf,
            kind=binding.kind,
            epoch=at.epoch,
            phase=at.phase,
            step=at.step,
            microstep=at.microstep,
            call=times[0],
            backward=times[1],
            rank=self.moment.rank,
            tensors=() if binding.hook == "tensor" else tuple(bad_tensors(module)),
            then=trigger.then,
            source=self.sources.of(binding, at),
            **numbers(tensor),
        )

    # What GradScalers do

    def scaler_scaled(self, scaler: GradScaler, losses: Any) -> None:
        """Gradients may be scaled from now on."""
        self.scaled = True

    def scaler_stepped(self, scaler: GradScaler, optimizer: Any, *, skipped: bool) -> None:
        """Count the gradient that waits as an overflow of the loss scale, where the scaler found one."""
        if self.suspect is None or not scaler.is_enabled():  # asking for more would wait for the device
            return
        if any(found.item() for found in scaler._found_inf_per_device(optimizer).values()):
            self.dismissed.append(self.suspect)
            self.suspect = None

    def scaler_updated(self, scaler: GradScaler) -> None:
        """Count the gradient that waits as the value that fires the triggers: the scaler found nothing wrong with any."""
        if scaler.is_enabled():
            self.found, self.suspect = self.found or self.suspect, None

    # At the ends of steps and epochs

    @property
    def halts(self) -> bool:
        """Whether training has to stop."""
        return self.error is not None or (self.found is not None and self.quiet and self.found.then == "stop")

    def raise_stopped(self) -> None:
        """Raise what stops training.

        Raises:
            Stopped: a trigger or a rule stops it.
        """
        if self.error is not None:
            raise self.error

    def end_step(self, writer: CaptureWriter | None, phase: str, step: int, keep: bool) -> bool:
        """Write the waiting captures where the step had a value that is not finite.

        Args:
            writer: the journal; None where the run captures no more.
            phase: phase of the step.
            step: its number.
            keep: whether its body did not raise; an event is written even where it did.

        Returns:
            Whether captures were written that need a commit.
        """
        found, self.found = self.found, None
        self.sources.end_step()
        fires = found is not None and self.quiet
        if self.looked:
            self.quiet, self.looked = found is None, False
        written = {}
        if found is not None and fires:
            written = self.buffer.write_out(writer, phase, step) if writer is not None else {}
            self.events.append((found, written))
            if found.then == "stop":
                self.error = self.error or Stopped(f"{found}; stopped by the trigger of probe `{found.probe}`")
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
        if self.triggers and not lines:
            lines.append("no trigger fired: every value that was checked is finite")
        return lines


class TriggeredRecorder(Recorder):
    """A recorder whose captures wait for a trigger."""

    __slots__ = ("binding", "waiting_writer", "watch")

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

    def writer_for(self, writer: CaptureWriter) -> CaptureWriter:
        """The buffer of the trigger in place of the journal."""
        return self.waiting_writer.over(writer)

    def put(self, tensor: Tensor, at: CaptureClock, call: int, backward: int) -> None:
        """Check whether a value is finite, and buffer it."""
        self.watch.look(self.binding, self.key.leaf, tensor, at, call, backward)
        super().put(tensor, at, call, backward)


def _is_gradient(binding: Binding) -> bool:
    return binding.root.startswith("grad")


def _event_text(found: NonfiniteEvent, written: dict[str, int]) -> str:
    if not written:
        return f"{found}; no captures could be written"
    full = f"; {written['crowded_out']} older captures were dropped before (`limits.buffer_bytes`)" if written["crowded_out"] else ""
    return f"{found}; written: {written['captures']} captures of {written['steps']} steps{full}"
