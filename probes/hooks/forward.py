"""Values that a module returns, and gradients of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import Module

from probes.hooks.backward import GradTap
from probes.hooks.moment import Gate, ModuleHook, Moment
from probes.hooks.tap import Tap, ValueTap
from probes.tensors import graph_task


class ForwardHook(ModuleHook):
    """The forward hook of one module, serving every binding on its output."""

    __slots__ = ("grads", "only", "values")

    def __init__(self, target: str, moment: Moment, gate: Gate, taps: Sequence[Tap]) -> None:
        super().__init__(target, moment, gate)
        self.values = tuple(tap for tap in taps if not isinstance(tap, GradTap))
        self.grads = tuple(tap for tap in taps if isinstance(tap, GradTap))
        plain = len(taps) == 1 and type(taps[0]) is ValueTap and taps[0].within is None and not taps[0].keys
        self.only = taps[0] if plain else None

    def __call__(self, module: Module, args: object, output: object) -> None:
        """Capture the output and arm its gradients, where a probe is due."""
        if not self.gate.due:
            return
        moment = self.moment
        recompute = graph_task() != -1
        if not moment.inside and not recompute and not moment.stray(self.target):
            return
        stamp = moment.stamp
        if self.stamp == stamp:
            self.call += 1
        else:
            self.stamp = stamp
            self.call = 0
        if recompute:
            self.recompute(module, output, self.call)
            return
        only = self.only
        if only is not None and type(output) is Tensor:
            # One probe on a plain tensor is the common case; this is `ValueTap.take` without its calls.
            single = only.single
            if single is not None and not only.broken:
                only.account.fired += 1
                try:
                    single.put(output, moment, self.call, 0)
                except Exception as error:  # the hook boundary: a failing probe must not change training
                    only.failed(error, output)
                return
        self.serve(module, output, self.call)

    def serve(self, module: Module, output: object, call: int) -> None:
        """Hand the output to every tap that is due."""
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
