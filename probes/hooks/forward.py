"""Values that a module returns, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident

from torch.nn import Module

from probes.hooks.backward import GradTap
from probes.hooks.capture.compiled import is_dynamo_compiling, trace_output
from probes.hooks.capture.run_state import Gate, ModuleHook, OutermostCall, RunState
from probes.hooks.capture.tap import Tap
from probes.hooks.capture.tracing import jit_tracing_state
from probes.hooks.edit import EditTap, GradEditTap
from probes.tensors import graph_task


def in_order(taps: Sequence[Tap]) -> tuple[tuple[Tap, ...], tuple[EditTap, ...], tuple[Tap, ...]]:
    """The taps on values: those that see the original, the edits, and those that see the value after the edits."""
    values = [tap for tap in taps if not isinstance(tap, GradTap | EditTap)]
    edits = tuple(tap for tap in taps if isinstance(tap, EditTap))
    return tuple(tap for tap in values if tap.original), edits, tuple(tap for tap in values if not tap.original)


def arming_order(tap: GradTap) -> int:
    """The order of tensor hooks on one value: each sees the gradient after the ones before it."""
    return 0 if tap.original else 1 if isinstance(tap, GradEditTap) else 2


def first_keys(taps: Sequence[Tap]) -> frozenset[str] | None:
    """The members of the value that the taps need; None if one needs all of it."""
    if any(not tap.keys or tap.keys[0] == "*" for tap in taps):
        return None
    return frozenset(tap.keys[0] for tap in taps)


class ForwardHook(ModuleHook):
    """The forward hook of one module, serving every binding on its output."""

    __slots__ = ("edits", "grads", "originals", "traceable", "values", "wanted")

    side = "output"

    def __init__(self, target: str, state: RunState, gate: Gate, taps: Sequence[Tap], module: Module) -> None:
        super().__init__(target, state, gate, module)
        self.originals, self.edits, self.values = in_order(taps)
        self.grads = tuple(sorted((tap for tap in taps if isinstance(tap, GradTap)), key=arming_order))
        self.traceable = not self.edits and not self.grads
        if self.traceable:
            self.originals, self.values = (), (*self.originals, *self.values)
        self.wanted = first_keys(taps)

    def __call__(self, module: Module, args: object, output: object) -> object:
        """Capture the output and arm its gradients, if a probe is due; return an edited output."""
        if not self.gate.due:
            return None
        if jit_tracing_state() is not None:
            return None
        if is_dynamo_compiling():
            return trace_output(self, module, args, output)
        if id(module) != self.module and self.is_moved(module):
            return None
        if graph_task() != -1:
            return self.recompute(module, output, self.repeat())
        at = self.state.calls.get(get_ident()) or self.state.here()
        if at is None:
            return None
        call = at.running.get(self.module)
        if call is None:
            call = at.number(self.module, "output")
        if not self.traceable:
            return self.serve(module, output, at, call)
        for tap in self.values:
            tap.take(output, at, call)
        return None

    def pick_up(self, at: OutermostCall) -> None:
        """Store the copies that compiled graphs made during the outermost call."""
        values = self.traced[:]
        self.traced.clear()
        for value in values:
            self.serve(None, value, at, at.number(self.module, "output"))

    def serve(self, module: Module | None, output: object, at: OutermostCall, call: int) -> object:
        """Pass the output to every tap that is due; return the new one if an edit changed it, else None."""
        for tap in self.originals:
            tap.take(output, at, call)
        given = output
        for edit in self.edits:
            if edit.wants(at, call):
                output = edit.changed(output, at, call)
        for tap in self.values:
            tap.take(output, at, call)
        for grad in self.grads:
            if grad.wants(at, call):
                grad.take_output(module, output, at, call)
        return None if output is given else output

    def recompute(self, module: Module, output: object, call: int) -> object:
        """A call that repeats another for activation checkpointing: its values were captured, its gradients come here."""
        given, at = output, self.state
        for edit in self.edits:
            if edit.gate.due:
                output = edit.changed(output, at, call, recompute=True)
        for tap in (*self.originals, *self.values):
            if tap.wants(at, call):
                tap.account.skip("recompute")
        for grad in self.grads:
            if grad.gate.due:
                grad.take_output(module, output, at, call)
        return None if output is given else output
