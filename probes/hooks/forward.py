"""Values that a module returns, and gradients of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Module

from probes.hooks.backward import GradTap
from probes.hooks.capture.compiled import is_compiling, is_dynamo_compiling, trace_output
from probes.hooks.capture.run_state import Gate, ModuleHook, Moment
from probes.hooks.capture.tap import Tap, ValueTap
from probes.hooks.capture.tracing import jit_tracing_state
from probes.hooks.edit import EditTap, GradEditTap
from probes.tensors import graph_task


def in_order(taps: Sequence[Tap]) -> tuple[tuple[Tap, ...], tuple[EditTap, ...], tuple[Tap, ...]]:
    """The taps on values: those that see the original, the edits, and those that see what the model goes on with."""
    values = [tap for tap in taps if not isinstance(tap, GradTap | EditTap)]
    edits = tuple(tap for tap in taps if isinstance(tap, EditTap))
    return tuple(tap for tap in values if tap.original), edits, tuple(tap for tap in values if not tap.original)


def turn(tap: GradTap) -> int:
    """When a tensor hook is armed among those of one value: each sees what the ones before it made of the gradient."""
    return 0 if tap.original else 1 if isinstance(tap, GradEditTap) else 2


def first_keys(taps: Sequence[Tap]) -> frozenset[str] | None:
    """The members of the value that the taps ask for; None where one asks for all of it."""
    if any(not tap.keys or tap.keys[0] == "*" for tap in taps):
        return None
    return frozenset(tap.keys[0] for tap in taps)


class ForwardHook(ModuleHook):
    """The forward hook of one module, serving every binding on its output."""

    __slots__ = ("edits", "grads", "only", "originals", "traceable", "values", "wanted")

    def __init__(self, target: str, moment: Moment, gate: Gate, taps: Sequence[Tap]) -> None:
        super().__init__(target, moment, gate)
        self.originals, self.edits, self.values = in_order(taps)
        self.grads = tuple(sorted((tap for tap in taps if isinstance(tap, GradTap)), key=turn))
        plain = len(taps) == 1 and type(taps[0]) is ValueTap and taps[0].within is None and not taps[0].keys
        self.only = taps[0] if plain else None
        self.traceable = not self.edits and not self.grads
        self.wanted = first_keys(taps)

    def __call__(self, module: Module, args: object, output: object) -> object:
        """Capture the output and arm its gradients, where a probe is due; an edited output is returned."""
        if not self.gate.due:
            return None
        if is_dynamo_compiling():
            return trace_output(self, module, args, output)
        if jit_tracing_state() is not None:
            return None
        only = self.only
        moment = self.moment
        if only is None or not moment.inside or graph_task() != -1:
            return self.take_turn(module, args, output)
        # One probe on one tensor is the common case; this is `take_turn` without its calls.
        stamp = moment.stamp
        if self.stamp != stamp:
            self.stamp = stamp
            self.call = 0
        else:
            self.call += 1
        single = only.single
        if single is None or only.broken or moment.writer is not single.writer or moment.phase != single.phase:
            return self.serve(module, output, self.call)
        account = only.account
        try:
            lane = single.lane
            if lane is None or not lane(output, moment.step, moment.microstep, self.call, 0):
                return self.serve(module, output, self.call)
        except Exception as error:  # the hook boundary: a failing probe must not change training
            account.fired += 1
            only.failed(error, output)
            return None
        account.fired += 1
        account.written += 1
        account.nbytes += single.nbytes
        return None

    def take_turn(self, module: Module, args: object, output: object) -> object:
        """What a call does in any case."""
        if is_compiling():
            return trace_output(self, module, args, output)
        recompute = graph_task() != -1
        if not self.moment.inside and not recompute and not self.moment.stray(self.target):
            return None
        call = self.count()
        if recompute:
            return self.recompute(module, output, call)
        return self.serve(module, output, call)

    def pick_up(self) -> None:
        """Take the copies that compiled graphs made during the outermost call."""
        values = self.traced[:]
        self.traced.clear()
        for value in values:
            self.serve(None, value, self.count())

    def serve(self, module: Module | None, output: object, call: int) -> object:
        """Hand the output to every tap that is due; the new one where an edit changed it, else None."""
        for tap in self.originals:
            if tap.wants(call):
                tap.take(output, call)
        given = output
        for edit in self.edits:
            if edit.wants(call):
                output = edit.changed(output, call)
        for tap in self.values:
            if tap.wants(call):
                tap.take(output, call)
        for grad in self.grads:
            if grad.wants(call):
                grad.take_from(module, output, call)
        return None if output is given else output

    def recompute(self, module: Module, output: object, call: int) -> object:
        """A call that repeats one for activation checkpointing: its values were taken, its gradients come here."""
        given = output
        for edit in self.edits:
            if edit.gate.due:
                output = edit.changed(output, call, recompute=True)
        for tap in (*self.originals, *self.values):
            if tap.wants(call):
                tap.account.skip("recompute")
        for grad in self.grads:
            if grad.gate.due and not grad.broken:
                grad.take_from(module, output, call)
        return None if output is given else output
