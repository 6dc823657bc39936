"""Calls that are not part of the program's computation: tracers that record a model, and functorch transforms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import torch

is_compiling = torch.compiler.is_compiling
_compiler = vars(torch.compiler)
_FLAG = "_is_compiling_flag"  # where a later release has none, the function is asked
jit_tracing_state = torch._C._get_tracing_state  # `Module._call_impl` itself asks this at every call
_functorch_level = torch._C._functorch.peek_interpreter_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
FUNCTION_APPLY = getattr(getattr(torch.autograd.Function.apply, "__func__", None), "__code__", None)
JIT_TRACE = torch.jit.trace.__code__.co_filename if hasattr(torch.jit.trace, "__code__") else ""


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
        or (_dispatch_modes() > 0 and _is_fake())
        or (not torch.is_grad_enabled() and _is_check_of_jit_trace())
    )


def _is_fake() -> bool:
    """Whether tensors currently have shapes without data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    stack = (torch._C._get_dispatch_stack_at(index) for index in range(_dispatch_modes()))
    infra = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return infra is not None or any(isinstance(mode, FakeTensorMode) for mode in stack)


def _is_check_of_jit_trace() -> bool:
    return any(frame.f_code.co_filename == JIT_TRACE for frame in _outwards())


def is_in_function() -> bool:
    """Whether an `autograd.Function` of the program is running its forward, in which gradients are off though it has a backward.

    A reversible network, an adjoint method or a checkpoint calls the model there, and again in the backward.
    """
    return any(frame.f_code is FUNCTION_APPLY for frame in _outwards())


def _outwards() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
