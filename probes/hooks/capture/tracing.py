"""Calls that are not part of the program's computation, such as those of tracers, and modes of the program that see every operation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import FrameType
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

P = ParamSpec("P")
R = TypeVar("R")

is_compiling = torch.compiler.is_compiling
_compiler = vars(torch.compiler)
_FLAG = "_is_compiling_flag"  # where a later release has none, the function is asked
jit_tracing_state = torch._C._get_tracing_state  # `Module._call_impl` itself asks this at every call
_functorch_level = torch._C._functorch.peek_interpreter_stack
dispatch_modes = torch._C._len_torch_dispatch_stack
function_modes = torch._C._len_torch_function_stack
FUNCTION_APPLY = getattr(getattr(torch.autograd.Function.apply, "__func__", None), "__code__", None)
JIT_TRACE = torch.jit.trace.__code__.co_filename if hasattr(torch.jit.trace, "__code__") else ""


def runs_eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """Keep dynamo from compiling a function, and what it calls, by itself; where dynamo traces a caller, it traces the function too.

    Where a graph breaks, or the limit of recompilations is reached, dynamo compiles each Python function that the program's code
    calls, those of probes too: that takes seconds, and the graphs are of no use, since what hooks do depends on the step.

    Args:
        function: what torch or the program calls.
    """
    return _skipped(function, within=True)


def breaks_graph(function: Callable[P, R]) -> Callable[P, R]:
    """Keep dynamo from compiling a function, also within a caller: the graph breaks where it is called, without a warning."""
    why = "probes: this runs between two graphs; compile without fullgraph"
    vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=why)
    return runs_eagerly(function)


def wraps_eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """Keep dynamo from compiling a wrapper by itself, but not the program's function that it calls."""
    return _skipped(function, within=False)


def outside_graphs(function: Callable[P, None]) -> Callable[P, None]:
    """A function that does nothing where dynamo traces its caller: dynamo cannot trace it, and cannot break every graph either.

    Args:
        function: what torch calls as a hook on every module of the process.
    """

    @wraps(function)
    def unless_traced(*args: P.args, **options: P.kwargs) -> None:
        if not torch.compiler.is_dynamo_compiling():
            function(*args, **options)

    return runs_eagerly(unless_traced)


def _skipped(function: Callable[P, R], *, within: bool) -> Callable[P, R]:
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip if within else default))
    return function


def is_transformed() -> bool:
    """Whether a functorch transform (`grad`, `vmap`, `jvp`, `jacrev`) is running on this thread."""
    return _functorch_level() is not None


def is_traced() -> bool:
    """Whether the current call is recorded, not computed: its values are placeholders, or are computed for a check.

    `torch.jit.trace` also calls the model once without tracing, and without gradients, to compare; that call is found on the stack.
    """
    fx = sys.modules.get("torch.fx._symbolic_trace")
    return (
        (_compiler.get(_FLAG, True) and is_compiling())  # `torch.export` too; the flag alone takes a fifth of the time
        or jit_tracing_state() is not None
        or (fx is not None and getattr(fx, "_is_fx_tracing_flag", False))
        or (dispatch_modes() > 0 and _is_fake())
        or (not torch.is_grad_enabled() and _is_check_of_jit_trace())
    )


def _is_fake() -> bool:
    """Whether tensors currently have shapes without data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    stack = (torch._C._get_dispatch_stack_at(index) for index in range(dispatch_modes()))
    infra = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return infra is not None or any(isinstance(mode, FakeTensorMode) for mode in stack)


def _is_check_of_jit_trace() -> bool:
    return any(frame.f_code.co_filename == JIT_TRACE for frame in outwards())


def is_in_function() -> bool:
    """Whether an `autograd.Function` of the program is running its forward, in which gradients are off though it has a backward.

    A reversible network, an adjoint method or a checkpoint calls the model there, and again in the backward.
    """
    return any(frame.f_code is FUNCTION_APPLY for frame in outwards())


def outwards() -> Iterator[FrameType]:
    """The frame of the caller, and all around it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def in_mode() -> bool:
    """Whether a TorchFunctionMode or a TorchDispatchMode is active on this thread; `torch.set_default_device` sets one, too."""
    return bool(function_modes() or dispatch_modes())


@contextmanager
def outside_modes() -> Iterator[None]:
    """Run operations that no mode of the program sees or changes, and no `__torch_function__` of a class of tensors."""
    with torch._C.DisableTorchFunction():
        if dispatch_modes():
            with _disable_current_modes():
                yield
        else:
            yield


def undisturbed(function: Callable[P, R], value: object = None) -> Callable[P, R]:
    """A function that no mode of the program sees at work, and no class of tensors of its own.

    Args:
        function: returned as it is where nothing would see it.
        value: what it works on; None for plain tensors.
    """
    seen = in_mode() or not (value is None or type(value) is Tensor)
    return partial(_outside, function) if seen else function


def _outside(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    with outside_modes():
        return function(*args, **options)
