"""Triggers: captures that wait in memory until a value is not finite, and are written then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim.optimizer import register_optimizer_step_pre_hook

from probes.component import Transform
from probes.errors import Stopped
from probes.hooks.capture.account import Account
from probes.hooks.capture.recorder import At, Recorder
from probes.hooks.capture.run_state import Moment, Writer
from probes.plan import Binding, Plan, Tree
from probes.runner.nonfinite import NonfiniteEvent, is_finite, numbers
from probes.runner.scalers import Scalers
from probes.runner.trigger_buffer import BufferWriter, TriggerBuffer
from probes.tensors import NotCapturable


class TriggerWatch:
    """What the probes with a trigger share: one event writes what each of them holds.

    A gradient counts once it is known to be unscaled: where a GradScaler is at work, what it finds to be an overflow of its own
    scale and skips is dismissed.

    Args:
        plan: the plan; its probes name their triggers.
        moment: the run's clock.
        trees: the module trees as they are now.

    Attributes:
        ring: the captures that wait.
        found: what was found in the open step.
        suspect: a gradient that was found, and that a GradScaler has not judged yet.
        dismissed: gradients that it blamed on its scale.
        events: what set the triggers off, and what was written.
        calm: whether the last step had nothing to find; an event is the first such step after one that had not.
        error: what training was stopped with.
    """

    def __init__(self, plan: Plan, moment: Moment, trees: Mapping[str, Tree]) -> None:
        self.plan = plan
        self.trees = trees
        self.moment = moment
        probes = plan.loaded.spec.probes
        self.triggers = {name: one.when.trigger for name, one in probes.items() if one.enabled and one.when.trigger is not None}
        room = plan.loaded.spec.limits.buffer_bytes
        before = {name: trigger.before for name, trigger in self.triggers.items()}
        self.ring = TriggerBuffer(moment, before, room if room is not None else 1 << 62)
        self.scalers = Scalers(self)
        self.found: NonfiniteEvent | None = None
        self.suspect: NonfiniteEvent | None = None
        self.dismissed: list[NonfiniteEvent] = []
        self.events: list[tuple[NonfiniteEvent, dict[str, int]]] = []
        self.calm = True
        self.looked = False
        self.error: Stopped | None = None
        self._step: Any = None
        self._told = 0

    def start(self, before_optimizer: Callable[..., None]) -> None:
        """Watch the optimizers, and the scalers where a gradient may set a trigger off.

        Args:
            before_optimizer: called before the step of any optimizer.
        """
        if self.triggers:
            self._step = register_optimizer_step_pre_hook(before_optimizer)
        if any(binding.name in self.triggers and _is_gradient(binding) for binding in self.plan.bindings):
            self.scalers.start()

    def stop(self) -> None:
        """Watch no more."""
        self.scalers.stop()
        if self._step is not None:
            self._step.remove()
            self._step = None

    # In the hooks

    def look(self, binding: Binding, leaf: str, tensor: Tensor, at: At, call: int, backward: int) -> None:
        """Look whether a value is finite; of a step only the first that is not matters.

        Args:
            binding: what sees it.
            leaf: which leaf of the binding.
            tensor: any shape, dtype and device, owned by the model; only read.
            at: the clock of the value.
            call: call of the module within the outermost call.
            backward: how often this arming has fired before.
        """
        self.looked = True
        scaled = self.scalers.live and _is_gradient(binding)
        if self.found is not None or (scaled and self.suspect is not None) or is_finite(tensor):
            return
        finding = self._finding(binding, leaf, tensor, at, (call, backward))
        if scaled:
            self.suspect = finding
        else:
            self.found = finding

    def _finding(self, binding: Binding, leaf: str, tensor: Tensor, at: At, times: tuple[int, int]) -> NonfiniteEvent:
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
            tensors=() if binding.hook == "tensor" else tuple(_bad_tensors(module)),
            then=trigger.then,
            **numbers(tensor),
        )

    # What a GradScaler says

    @property
    def undecided(self) -> bool:
        """Whether a gradient waits for its judgement."""
        return self.suspect is not None

    def dismiss(self) -> None:
        """Forget the gradient that waits, but say that there was one."""
        if self.suspect is not None:
            self.dismissed.append(self.suspect)
            self.suspect = None

    def confirm(self) -> None:
        """Take the gradient that waits for what was found."""
        self.found, self.suspect = self.found or self.suspect, None

    # At the ends of steps and epochs

    @property
    def halts(self) -> bool:
        """Whether training has to stop."""
        return self.error is not None or (self.found is not None and self.calm and self.found.then == "stop")

    def raise_stopped(self) -> None:
        """Raise what training is stopped with.

        Raises:
            Stopped: a trigger stops it.
        """
        if self.error is not None:
            raise self.error

    def end_step(self, writer: Writer | None, phase: str, step: int, keep: bool) -> bool:
        """Write what waits where something was found in the step.

        Args:
            writer: the journal; None where nothing is taken any more.
            phase: phase of the step.
            step: its number.
            keep: whether its body came to its end; what was found is written even where it did not.

        Returns:
            Whether anything waits for a commit.
        """
        found, self.found = self.found, None
        fires = found is not None and self.calm
        if self.looked:
            self.calm, self.looked = found is None, False
        poured = {}
        if found is not None and fires:
            poured = self.ring.pour(writer, phase, step) if writer is not None else {}
            self.events.append((found, poured))
            if found.then == "stop":
                self.error = self.error or Stopped(f"{found}; stopped by the trigger of probe `{found.probe}`")
        self.ring.end_step(keep or fires, age=self.suspect is None)
        return bool(poured)

    def end_epoch(self, epoch: int) -> dict[str, Any]:
        """What the file of an epoch says: what set the triggers off in it."""
        self.ring.end_epoch()
        events = [{**found.as_dict(), **poured} for found, poured in self.events[self._told :]]
        self._told = len(self.events)
        dismissed = [one.as_dict() for one in self.dismissed if one.epoch == epoch]
        return {"events": events, "dismissed": len(dismissed), **({"first_dismissed": dismissed[0]} if dismissed else {})}

    def notes(self) -> list[str]:
        """What a person is told at the end."""
        lines = [_event_text(found, poured) for found, poured in self.events]
        if self.dismissed:
            first = self.dismissed[0]
            lines.append(
                f"{len(self.dismissed)} gradients overflowed in steps that GradScaler skipped, the first: {first.where}, {first.when}"
            )
        if self.suspect is not None:
            lines.append(f"not decided, as GradScaler.update() did not follow: {self.suspect}")
        if self.triggers and not lines:
            lines.append("nothing set a trigger off: every value that was looked at is finite")
        return lines


class TriggeredRecorder(Recorder):
    """A recorder whose captures wait for a trigger."""

    __slots__ = ("binding", "shelf", "watch")

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
        self.shelf = BufferWriter(watch.ring, self)

    def taker(self, writer: Writer) -> Writer:
        """The shelf in place of the journal."""
        return self.shelf.over(writer)

    def put(self, tensor: Tensor, at: At, call: int, backward: int) -> None:
        """Look whether a value is finite, and keep it."""
        self.watch.look(self.binding, self.key.leaf, tensor, at, call, backward)
        super().put(tensor, at, call, backward)
        self.account.written -= 1  # it is held, and counted when it is written
        self.account.nbytes -= self.nbytes


def _is_gradient(binding: Binding) -> bool:
    return binding.root.startswith("grad")


def _bad_tensors(module: Module) -> list[str]:
    """Parameters and buffers of a module itself that are not finite."""
    found = []
    for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
        try:
            if tensor is not None and not is_finite(tensor):
                found.append(name)
        except (NotCapturable, RuntimeError):  # such as a lazy one, of which nothing can be said
            continue
    return found


def _event_text(found: NonfiniteEvent, poured: dict[str, int]) -> str:
    if not poured:
        return f"{found}; nothing could be written of it"
    full = f"; {poured['crowded_out']} captures had made room before (`limits.buffer_bytes`)" if poured["crowded_out"] else ""
    return f"{found}; written: {poured['captures']} captures of {poured['steps']} steps{full}"
