"""Values that a module returns, and gradients of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Module

from probes.hooks.backward import GradTap
from probes.hooks.moment import Gate, ModuleHook, Moment
from probes.hooks.tap import Tap
from probes.tensors import in_backward


class ForwardHook(ModuleHook):
    """The forward hook of one module, serving every binding on its output."""

    __slots__ = ("grads", "values")

    def __init__(self, target: str, moment: Moment, gate: Gate, taps: Sequence[Tap]) -> None:
        super().__init__(target, moment, gate)
        self.values = tuple(tap for tap in taps if not isinstance(tap, GradTap))
        self.grads = tuple(tap for tap in taps if isinstance(tap, GradTap))

    def __call__(self, module: Module, args: object, output: object) -> None:
        """Capture the output and arm its gradients, where a probe is due."""
        if not self.gate.due or (self.moment.microstep < 0 and not self.moment.stray(self.target)):
            return
        call = self.count()
        if in_backward():
            self.recompute(module, output, call)
            return
        for tap in self.values:
            if tap.wants(call):
                tap.take(output, call)
        for grad in self.grads:
            if grad.wants(call):
                grad.take_from(module, output, call)

    def recompute(self, module: Module, output: object, call: int) -> None:
        """A call that repeats one for activation checkpointing: its values were taken, its gradients come here."""
        for tap in self.values:
            if tap.wants(call):
                tap.account.skip("recompute")
        for grad in self.grads:
            if grad.gate.due and not grad.broken:
                grad.take_from(module, output, call)
