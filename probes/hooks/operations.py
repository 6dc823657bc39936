"""Calls of torch functions in a module's own forward, observed by a torch-function mode that is active during that forward only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from torch._C import _get_function_stack_at, _len_torch_function_stack
from torch.nn import Module
from torch.overrides import TorchFunctionMode

from probes.hooks.backward import GradTap
from probes.hooks.capture.compiled import is_dynamo_compiling, registered
from probes.hooks.capture.model_copies import HookOfOurs
from probes.hooks.capture.run_state import CaptureClock, Gate, ModuleHook, OutermostCall, RunState
from probes.hooks.capture.tap import Tap
from probes.hooks.capture.tracing import jit_tracing_state
from probes.hooks.edit import EditTap
from probes.hooks.forward import arming_order, in_order
from probes.hooks.input_share import AliasedInputs
from probes.tensors import NotCapturable, graph_task
from probes.value_path import OperationName

CALL_IMPL = Module._call_impl.__code__
INPUTS = ("input", "grad_input", "grad_input_total")
Function = Callable[..., Any]


def function_name(function: Any) -> str:
    """The name of a torch function in specs: `softmax` for `torch.softmax`, `x.softmax` and `F.softmax`; `add` for `x + y`.

    Empty for what is not an operation, such as reading `x.shape`.
    """
    name: str = getattr(function, "__name__", "")
    if name.startswith("__") and name.endswith("__"):
        return "" if name in ("__get__", "__set__", "__delete__") else name[2:-2]
    return name


def rewrites_its_input(name: str) -> bool:
    """Whether an operation writes to its first input, such as `relu_` and `x += 1`."""
    return name.endswith("_") or name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "setitem")


class OperationTap(Tap):
    """One binding on the calls of one function in a module's own forward.

    Each n-th call within one call of the module has a tap of its own, since shapes differ between them.

    Attributes:
        operation: what the spec names.
        function: the function that a dotted name is; None if the bare name decides.
        calls: the tap of each n-th call.
    """

    __slots__ = ("calls", "function", "make_call", "operation")

    operation: OperationName
    function: Function | None
    make_call: Callable[[int], Tap]
    calls: dict[int, Tap]

    def begin(self, operation: OperationName, function: Function | None, make_call: Callable[[int], Tap]) -> OperationTap:
        """Name the operation.

        Args:
            operation: what the spec names.
            function: the function that a dotted name is.
            make_call: makes the tap of the n-th call.
        """
        self.operation, self.function, self.make_call = operation, function, make_call
        self.absence = "not called"
        self.calls = {}
        return self

    def matches(self, function: Function) -> bool:
        """Whether the tap's operation is this function."""
        if self.function is not None:
            return function is self.function or function == self.function
        return function_name(function) == self.operation.name

    def of_call(self, number: int) -> Tap | None:
        """The tap of the n-th call; None if the spec names another."""
        if self.operation.nth not in (None, number):
            return None
        found = self.calls.get(number)
        if found is None:
            found = self.calls[number] = self.make_call(number)
        return found

    def reset_counters(self, account: Any) -> None:
        """Use new counters from now on."""
        super().reset_counters(account)
        for tap in self.calls.values():
            tap.reset_counters(account)


class RunningForward:
    """One call of a probed module that is running on this thread.

    Attributes:
        hook: what serves the module.
        frame: the frame of its `_call_impl`.
        at: its clock.
        call: its number.
        recompute: whether activation checkpointing repeats it.
        counts: how often each operation of the spec was called.
        turned_on: whether the mode was off before.
    """

    __slots__ = ("at", "call", "counts", "frame", "hook", "recompute", "turned_on")

    def __init__(self, hook: OperationsHook, frame: FrameType, at: CaptureClock, call: int, *, recompute: bool) -> None:
        self.hook = hook
        self.frame = frame
        self.at = at
        self.call = call
        self.recompute = recompute
        self.counts: dict[OperationName, int] = {}
        self.turned_on = False

    def operate(self, taps: Sequence[OperationTap], function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that the spec names; its values go to the taps.

        Raises:
            EditError: an edit of a value fails.
        """
        chosen = []
        for operation in dict.fromkeys(tap.operation for tap in taps):
            number = self.counts.get(operation, 0)
            self.counts[operation] = number + 1
            chosen += [found for tap in taps if tap.operation == operation and (found := tap.of_call(number)) is not None]
        if not chosen:
            return function(*args, **kwargs)
        before = [tap for tap in chosen if tap.root in INPUTS]
        if before:
            args, kwargs = self.look_at_inputs(before, function_name(function), args, kwargs)
        output = function(*args, **kwargs)
        return self.look([tap for tap in chosen if tap.root not in INPUTS], output)

    def look_at_inputs(
        self, taps: list[Tap], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass the inputs to the taps, by position and by name; return inputs that an edit or a share of a gradient replaces."""
        shares = [tap for tap in taps if isinstance(tap, GradTap) and tap.root == "grad_input"]
        inputs = {**{str(index): value for index, value in enumerate(args)}, **kwargs}
        found = self.look([tap for tap in taps if tap not in shares], inputs)
        if shares and rewrites_its_input(name):
            for tap in shares:
                tap.failed(NotCapturable("no share", f"`{name}` writes to its input"), tap.path, self.at)
        elif shares:
            aliased = AliasedInputs()
            found = {key: aliased.of(value) for key, value in found.items()}
            for tap in shares:
                tap.aliases = frozenset(aliased.aliases)
                self.arm([tap], found)
                tap.aliases = None
        if found is inputs:
            return args, kwargs
        return tuple(found[str(index)] for index in range(len(args))), {key: found[key] for key in kwargs}

    def look(self, taps: Sequence[Tap], value: Any) -> Any:
        """Pass a value to the taps; return the edited value."""
        originals, edits, values = in_order(taps)
        self.take(originals, value)
        for edit in edits:
            if edit.gate.due if self.recompute else edit.wants(self.at, self.call):
                value = edit.changed(value, self.at, self.call, self.recompute)
        self.take(values, value)
        self.arm(sorted((tap for tap in taps if isinstance(tap, GradTap)), key=arming_order), value)
        return value

    def take(self, taps: Sequence[Tap], value: Any) -> None:
        """Store values; those of a recompute were captured in the first pass."""
        if not self.recompute:
            for tap in taps:
                tap.take(value, self.at, self.call)

    def arm(self, taps: Sequence[GradTap], value: Any) -> None:
        """Arm gradients."""
        for tap in taps:
            if tap.gate.due if self.recompute else tap.wants(self.at, self.call):
                tap.take(value, self.at, self.call)


class OperationMode(TorchFunctionMode):
    """Observes the torch functions that a thread calls while a probed module runs.

    Attributes:
        running: the calls of probed modules, the innermost last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running: list[RunningForward] = []

    def __torch_function__(self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call a function; within this method the mode is off."""
        for running in reversed(self.running):
            taps = running.hook.of(func)
            if taps and forward_around(sys._getframe(1)) is running.frame:
                return running.operate(taps, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    @property
    def is_on(self) -> bool:
        """Whether PyTorch uses the mode: not within `__torch_function__`, and not after an interrupted backward in which it began."""
        return any(_get_function_stack_at(index) is self for index in range(_len_torch_function_stack()))

    def begin(self, running: RunningForward) -> None:
        """A probed module begins to run."""
        self.running.append(running)
        if not self.is_on:
            running.turned_on = True
            self.__enter__()  # type: ignore[no-untyped-call]  # untyped in torch

    def end(self, frame: FrameType | None) -> None:
        """The module has returned or raised, and so have those within it."""
        for index, running in enumerate(self.running):
            if running.frame is frame:
                self._keep(self.running[:index])
                return

    def end_of(self, call: OutermostCall | None) -> None:
        """An outermost call is over, with everything in it; recomputes belong to a backward, which runs in no outermost call."""
        if self.running:
            self._keep([one for one in self.running if isinstance(one.at, OutermostCall) and one.at is not call])

    def _keep(self, running: list[RunningForward]) -> None:
        over = [one for one in self.running if one.turned_on and one not in running]
        self.running = running
        for _ in over:
            if self.is_on:
                self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # untyped in torch


class _ThreadModes(threading.local):
    """The mode of each thread."""

    def __init__(self) -> None:
        self.mode = OperationMode()


_modes = _ThreadModes()


def calling_frame(frame: FrameType | None) -> FrameType | None:
    """The frame of `Module._call_impl` of the innermost module that is running; None outside of any."""
    while frame is not None and frame.f_code is not CALL_IMPL:
        frame = frame.f_back
    return frame


def forward_around(frame: FrameType | None) -> FrameType | None:
    """The same, for a function that the module's forward calls; None if a probe's hook on the module calls it, such as a transform."""
    below = None
    while frame is not None and frame.f_code is not CALL_IMPL:
        if frame.f_code.co_filename != CALL_IMPL.co_filename:
            below = frame
        frame = frame.f_back
    return None if below is not None and below.f_globals.get("__name__", "").startswith("probes.hooks") else frame


class OperationsHook(ModuleHook):
    """The hook of all bindings on operations of one module: the mode is on while its forward runs."""

    __slots__ = ("known", "taps")

    def __init__(self, target: str, state: RunState, gate: Gate, taps: Sequence[OperationTap], module: Module) -> None:
        super().__init__(target, state, gate, module)
        self.taps = tuple(taps)
        self.known: dict[Function, tuple[OperationTap, ...]] = {}

    def attach(self, module: Module) -> list[Any]:
        """Register the hooks on either side of the forward and return their handles; other hooks of probes run outside of them."""
        return [
            module.register_forward_pre_hook(registered(_BeforeForward(self))),
            module.register_forward_hook(registered(_AfterForward(self)), prepend=True, always_call=True),
        ]

    def of(self, function: Function) -> tuple[OperationTap, ...]:
        """The bindings on a function."""
        found = self.known.get(function)
        if found is None:
            found = self.known[function] = tuple(tap for tap in self.taps if tap.matches(function))
        return found

    def before(self) -> None:
        """The module is about to run."""
        if not self.gate.due or is_dynamo_compiling() or jit_tracing_state() is not None:
            return
        recompute = graph_task() != -1
        here = self.state.here()
        frame = calling_frame(sys._getframe(2))
        if frame is None or (here is None and not recompute) or (recompute and not self.repeats):
            return
        at: CaptureClock = self.state if recompute or here is None else here
        call = self.repeat() if recompute or here is None else here.number(self.module, "operations")
        _modes.mode.begin(RunningForward(self, frame, at, call, recompute=recompute))

    def after(self) -> None:
        """The module has run, or has raised."""
        if _modes.mode.running and not is_dynamo_compiling():
            _modes.mode.end(calling_frame(sys._getframe(2)))

    @property
    def repeats(self) -> bool:
        """Whether a recompute of activation checkpointing concerns a binding: it repeats edits, and may carry gradients."""
        return any(tap.root.startswith("grad") or any(isinstance(one, EditTap) for one in tap.calls.values()) for tap in self.taps)


class _Side(HookOfOurs):
    """A hook on one side of a forward; a copy or a pickle of the model does not contain it."""

    __slots__ = ("hook",)

    def __init__(self, hook: OperationsHook) -> None:
        self.hook = hook


class _BeforeForward(_Side):
    __slots__ = ()

    def __call__(self, module: Module, args: object) -> None:
        if not self.hook.is_moved(module):
            self.hook.before()


class _AfterForward(_Side):
    __slots__ = ()

    def __call__(self, module: Module, args: object, output: object) -> None:
        if not self.hook.is_moved(module):
            self.hook.after()


class CallWithOperations(OutermostCall):
    """An outermost call in which modules with probed operations run: the mode of its thread ends with it, also after an exception."""

    __slots__ = ()

    def over(self) -> None:
        """The call has returned or raised; no hook of a module runs after a KeyboardInterrupt."""
        _modes.mode.end_of(self)


def end_recomputes() -> None:
    """End the mode of this thread if activation checkpointing was interrupted while it repeated a forward."""
    _modes.mode.end_of(None)
