"""Logged values of the training loop, passed to the probes that capture them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import Optimizer

from probes.errors import UsageError
from probes.hooks.capture.accumulator import LastClock
from probes.hooks.capture.run_state import CaptureClock, RunState
from probes.hooks.loop import as_tensors
from probes.plan import Plan
from probes.runner.attached.attached_hooks import Live
from probes.runner.clock.open_steps import OpenStep
from probes.runner.clock.run_clock import RunClock
from probes.runner.failures import Failures

LOSS = "loss"
LOGGED = "loop."  # prefix of labels of samples that the program logs


def labels_of(plan: Plan) -> frozenset[str]:
    """The names of logged values that the spec uses as labels of samples, or in conditions."""
    probes = {binding.name: binding.probe for binding in plan.bindings}.values()
    used = [str(getattr(one, "by", "")) for probe in probes for one in probe.transforms]
    compared = [one.loop for probe in probes for one in (probe.where, probe.when.trigger) if one is not None and one.loop is not None]
    return frozenset([*(name.removeprefix(LOGGED) for name in used if name.startswith(LOGGED)), *compared])


class LoopValues:
    """Passes logged values to the bindings that name them.

    A value that is logged in an item of `run.steps` before the first call waits until that call makes a step of the item. An item
    that the program skips is not a step, and what was logged in it is dropped. A value that is logged in a named phase belongs to a
    step of that phase, also if the step has ended and a step around it continues.

    Args:
        live: has the bindings on values of the loop, and the module trees of the models.
        moment: the clock of the hooks.
        clock: the clock of the run.
        failures: a value that no probe captures is reported there.

    Attributes:
        taps: the bindings on values of the loop.
        held: what waits for the first call of its item.
        labels: the names of logged values that are used as labels of samples, or in conditions.
    """

    def __init__(self, live: Live, moment: RunState, clock: RunClock, failures: Failures) -> None:
        self.taps = live.loops
        self.trees = live.trees
        self.moment = moment
        self.clock = clock
        self.failures = failures
        self.held: list[tuple[OpenStep, str, Any]] = []
        self.labels = labels_of(live.plan)
        self._ended: dict[str, LastClock] = {}
        self._unasked: set[str] = set()
        self._numbered: dict[str, WeakKeyDictionary[Optimizer, int]] = {}
        self._owned: dict[str, set[int]] = {}

    def asks_for(self, name: str) -> bool:
        """Whether a probe captures a value of this name, or uses it."""
        return name in self.labels or any(tap.asks_for(name) for _, tap in self.taps)

    def log(self, values: Mapping[str, Any], phase: str = "") -> None:
        """The program logs values.

        Args:
            values: by name.
            phase: the phase that they are of, if it is known; else that of the loop.

        Raises:
            UsageError: no step has begun, or a value is of no kind that can be stored.
        """
        step = self.clock.steps.innermost()
        ended = self._ended_in(phase, step)
        waits = ended is None and step is not None and step.index < 0
        if not waits and (self.clock.epoch is None or not (self.moment.open or self.clock.counts.total())):
            where = "no epoch is open" if self.clock.epoch is None else f"no step of epoch {self.clock.epoch} has begun"
            raise UsageError(f"{where}: log within `run.steps` or `run.step`, or after the first call of the model")
        for name, value in values.items():
            if not self.asks_for(name):
                self._report(name)
                continue
            if step is not None and waits:
                self.held.append((step, name, as_tensors(name, value, copies=True)))
            else:
                self._give(name, as_tensors(name, value), ended)

    def _ended_in(self, phase: str, step: OpenStep | None) -> LastClock | None:
        """The last step of the phase that values are logged in, if it has ended and the hooks see a step of another phase."""
        named = self.clock.phases
        if step is not None and step.item is not None and step.level >= max(1, len(named)):
            return None
        ended = self._ended.get(phase or (named[-1] if named else ""))
        return ended if ended is not None and ended.epoch == self.moment.epoch and ended.phase != self.moment.phase else None

    def step_ended(self, at: LastClock) -> None:
        """A step has ended and was kept."""
        self._ended[at.phase] = at

    def step_opens(self) -> None:
        """A step has its number: values that waited for it are stored, and those of skipped items are dropped."""
        held, self.held = self.held, []
        for step, name, tensors in held:
            if step.index >= 0:
                self._give(name, tensors)
            elif step in self.clock.steps.stack:
                self.held.append((step, name, tensors))

    def parameters_changed(self) -> None:
        """Parameters may have been replaced."""
        self._owned.clear()

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: the numbers of its parameter groups, such as learning rates, are logged by their names."""
        if not self.moment.open:
            return
        for model in {binding.model for binding, _ in self.taps} if self.taps else self.trees:
            if self._owns(optimizer, model):
                self._log_groups(optimizer, model)

    def _log_groups(self, optimizer: Optimizer, model: str) -> None:
        """Log each number of the groups; the groups of further optimizers continue the numbering."""
        known = self._numbered.setdefault(model, WeakKeyDictionary())
        start = known.setdefault(optimizer, sum(len(one.param_groups) for one in known))
        groups = {str(start + index): group for index, group in enumerate(optimizer.param_groups)}
        for name in dict.fromkeys(key for group in groups.values() for key in group if key != "params"):
            numbers = {index: group[name] for index, group in groups.items() if _is_number(group.get(name))}
            for index, number in numbers.items():
                if f"{name}.{index}" in self.labels and not isinstance(number, tuple | list):
                    self._keep_labels(f"{name}.{index}", as_tensors(name, number))
            asking = [tap for binding, tap in self.taps if binding.model == model and tap.asks_for(name)] if numbers else []
            for tap in asking:
                tap.log(name, as_tensors(name, numbers), self.moment)

    def loss(self, loss: Tensor) -> None:
        """The program calls `backward` on a scalar."""
        if self.moment.open:
            self._give(LOSS, loss)

    def _give(self, name: str, tensors: Any, ended: LastClock | None = None) -> None:
        at: CaptureClock = ended or self.moment
        if name in self.labels and self.moment.open and ended is None:
            self._keep_labels(name, tensors)
        for _, tap in self.taps:
            if tap.asks_for(name):
                tap.log(name, tensors, at)

    def _keep_labels(self, name: str, tensors: Any) -> None:
        """Keep labels until the step is over; labels of several calls are concatenated."""
        found = self.moment.logged.setdefault(self.moment.opened, {})
        members = tensors if isinstance(tensors, list) else [tensors]
        if not all(isinstance(one, Tensor) for one in members):
            raise UsageError(f"`{name}` is used as labels or in a condition of the spec: log a number, a tensor, or a list of numbers")
        rows = torch.cat([one.detach().cpu().clone().reshape(-1) for one in members])
        found[name] = torch.cat([found[name], rows]) if name in found else rows

    def _owns(self, optimizer: Optimizer, model: str) -> bool:
        if model not in self._owned:
            self._owned[model] = {id(parameter) for parameter in self.trees[model].model.parameters()}
        return any(id(parameter) in self._owned[model] for group in optimizer.param_groups for parameter in group["params"])

    def _report(self, name: str) -> None:
        if name not in self._unasked:
            self._unasked.add(name)
            self.failures.say(
                f"`{name}` was logged, and no probe captures it: add `loop.{name}` to the `values` of a probe without `modules`"
            )


def _is_number(value: Any) -> bool:
    """Whether an option of an optimizer is a number, or a few numbers, such as `betas`."""
    if isinstance(value, tuple | list):
        return bool(value) and all(_is_number(member) for member in value)
    return (isinstance(value, int | float) and not isinstance(value, bool)) or (isinstance(value, Tensor) and value.numel() == 1)
