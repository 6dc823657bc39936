"""The inputs of a module, under the names of its `forward`, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn import Module

from probes.hooks.backward import GradTap
from probes.hooks.capture.compiled import is_compiling, trace_inputs
from probes.hooks.capture.run_state import CaptureClock, Gate, ModuleHook, OutermostCall, RunState
from probes.hooks.capture.tap import Tap
from probes.hooks.capture.tracing import jit_tracing_state
from probes.hooks.forward import arming_order, first_keys, in_order
from probes.hooks.input_share import AfterCall, AliasedInputs, producer, rewrites
from probes.hooks.masks import masks_of
from probes.tensors import graph_task
from probes.transforms.kernels.mask import given
from probes.value_path import NamedInputs

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class PreForwardHook(ModuleHook):
    """The forward pre-hook of one module, serving every binding on its inputs."""

    __slots__ = ("edits", "grads", "masks", "named", "names", "originals", "rest", "shares", "traceable", "values", "wanted")

    def __init__(self, target: str, state: RunState, gate: Gate, taps: Sequence[Tap], module: Module) -> None:
        super().__init__(target, state, gate, module)
        self.named = NamedInputs.of(module.forward)
        self.names, self.rest = self.named
        for tap in taps:
            tap.keys = self.named.keys(tap.keys)
        self.masks = tuple(dict.fromkeys(path for tap in taps for path in tap.masks))
        self.originals, self.edits, self.values = in_order(taps)
        grads = sorted((tap for tap in taps if isinstance(tap, GradTap)), key=arming_order)
        self.grads = tuple(tap for tap in grads if tap.root == "grad_input_total")
        self.shares = tuple(tap for tap in grads if tap.root == "grad_input")
        self.traceable = not self.edits and not grads
        self.wanted = first_keys(taps)

    def __call__(self, module: Module, args: Args, kwargs: Kwargs | None = None) -> tuple[Args, Kwargs] | None:
        """Capture the inputs and arm their gradients, if a probe is due; return changed inputs.

        A hook that PyTorch has moved to another module gets no `kwargs`.
        """
        if not self.gate.due or kwargs is None:
            return None
        if is_compiling():
            changes: tuple[Args, Kwargs] | None = trace_inputs(self, module, args, kwargs)
            return changes
        if jit_tracing_state() is not None:
            return None
        recompute = graph_task() != -1
        here = self.state.here()
        if here is None and not recompute:
            return None
        at: CaptureClock = self.state if recompute or here is None else here
        call = self.repeat() if recompute or here is None else here.number(self.module, "input")
        inputs = self.bind(args, kwargs)
        self.look(self.originals, inputs, at, call, recompute)
        changed = False
        for edit in self.edits:
            if edit.gate.due if recompute else edit.wants(at, call):
                with given(masks_of(self.masks, self.named, inputs) if edit.masks else {}):
                    inputs = edit.changed(inputs, at, call, recompute)
                changed = True
        if changed:
            args, kwargs = self.unbind(inputs, args, kwargs)
        self.look(self.values, inputs, at, call, recompute)
        for grad in self.grads:
            if grad.gate.due if recompute else grad.wants(at, call):
                grad.take(inputs, at, call)
        if any(share.gate.due if recompute else share.wants(at, call) for share in self.shares):
            return self.share(module, args, kwargs, at, call)
        return (args, kwargs) if changed else None

    def pick_up(self, at: OutermostCall) -> None:
        """Store the copies that compiled graphs made during the outermost call."""
        inputs = self.traced[:]
        self.traced.clear()
        for value in inputs:
            call = at.number(self.module, "input")
            self.look(self.originals, value, at, call, False)
            self.look(self.values, value, at, call, False)

    def look(self, taps: Sequence[Tap], inputs: object, at: CaptureClock, call: int, recompute: bool) -> None:
        """Pass the inputs to the taps on values; those of a recompute were captured in the first pass."""
        if self.masks and isinstance(inputs, dict):
            with given(masks_of(self.masks, self.named, inputs)):
                self.hand(taps, inputs, at, call, recompute)
        else:
            self.hand(taps, inputs, at, call, recompute)

    def hand(self, taps: Sequence[Tap], inputs: object, at: CaptureClock, call: int, recompute: bool) -> None:
        """Pass the inputs to each tap."""
        for tap in taps:
            if not recompute:
                tap.take(inputs, at, call)
            elif tap.wants(at, call):
                tap.account.skip("recompute")

    def unbind(self, inputs: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Named inputs in the form of the module's call."""
        positional = [inputs[name] for name in self.names[: len(args)]]
        if len(args) > len(self.names):
            positional += inputs[self.rest or "args"]
        return tuple(positional), {name: inputs[name] for name in kwargs}

    def bind(self, args: Args, kwargs: Kwargs) -> dict[str, Any]:
        """The inputs by name."""
        return self.named.bind(args, kwargs)

    def share(self, module: Module, args: Args, kwargs: Kwargs, at: CaptureClock, call: int) -> tuple[Args, Kwargs]:
        """Give the module an alias of every input that requires a gradient: the alias gets this module's share only."""
        first = self.shares[0]

        def after(work: Callable[[], None]) -> None:
            hook = AfterCall(module, args, work, lambda error: first.failed(error, first.path, at))
            first.armed.handles.append(hook.handle)  # also removed with the step, in case the end of the call is not observed

        before = producer(self.bind(args, kwargs)) if rewrites(module) else None
        if before is not None:
            after(lambda: self.arm_rewritten(self.bind(args, kwargs), before, at, call))
            return args, kwargs
        aliased = AliasedInputs()
        args, kwargs = tuple(aliased.of(member) for member in args), {name: aliased.of(member) for name, member in kwargs.items()}
        inputs = self.bind(args, kwargs)
        for tap in self.shares:
            tap.aliases = frozenset(aliased.aliases)
            tap.take(inputs, at, call)
            tap.aliases = None
        if aliased.replaced:
            after(aliased.write_back)
        return args, kwargs

    def arm_rewritten(self, inputs: dict[str, Any], before: Any, at: CaptureClock, call: int) -> None:
        """Arm the input that the module has rewritten."""
        for tap in self.shares:
            tap.producer = before
            tap.take(inputs, at, call)
            tap.producer = None
