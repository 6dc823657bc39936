"""Hooks that torch.compile traces: a copy of the value inside the graph, read when the call has returned.

Clocks, transforms and files cannot be traced. A traced hook does one thing: it appends a detached clone to its own list.
The clone is part of the graph, so a later in-place operation does not reach it, and the list is as empty before every
call as it was when the graph was made, so that there is one graph for a due step and one for a step that is not.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor

from probes.errors import RunError
from probes.hooks.capture.model_copies import HookOfOurs
from probes.hooks.capture.tracing import is_transformed, outwards
from probes.optional_package import OLDEST_COMPILER, is_older
from probes.tensors import children, key_names

is_compiling = torch.compiler.is_compiling
is_dynamo_compiling = torch.compiler.is_dynamo_compiling
is_exporting = getattr(torch.compiler, "is_exporting", is_compiling)  # torch before 2.7 cannot tell the two apart


class TraceableHook(Protocol):
    """A hook on a module, in the form that is traced.

    Attributes:
        edits: those that change the value.
        traceable: whether all its work can wait until the call has returned.
        traced: copies of the values that it was called with.
        wanted: the members of a value that its probes capture; None for all.
    """

    edits: tuple[Any, ...]
    traceable: bool
    traced: list[Any]
    wanted: frozenset[str] | None


class TraceablePreHook(TraceableHook, Protocol):
    """A hook on the inputs of a module, in the form that is traced."""

    def bind(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The inputs by the names of the parameters of `forward`."""


def in_use() -> bool:
    """Whether dynamo has compiled anything in this process since its last reset; dynamo is never imported to find out."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and getattr(frames, "FRAME_COUNTER", 1) > 0


def is_expected() -> bool:
    """Whether `torch.compile` was called in this process, so that something is or may still be compiled.

    Importing dynamo says nothing: every optimizer does. What `torch.compile` is called with is kept until dynamo is reset.
    """
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = {} if frames is None else getattr(frames, "cached_backends", _UNKNOWN)
    return bool(backends) and len(backends) > (None in backends.values())  # None is that of `torch.compiler.disable`


_UNKNOWN = {0: "a PyTorch that does not tell"}


def forget() -> None:
    """Drop all compiled code of the process: a graph that was made without a hook ignores it permanently."""
    import torch._dynamo

    torch._dynamo.reset()


def kept(value: Any, wanted: frozenset[str] | None) -> Any:
    """A copy of a nested value: tensors cloned, containers as lists and dicts, everything else left out.

    Args:
        value: what the module was called with or returned, owned by the model.
        wanted: the members of `value` that are requested; None for all.
    """
    if wanted is not None and not wanted:
        return None
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [kept(member, None) if wanted is None or str(index) in wanted else None for index, member in enumerate(value)]
    if isinstance(value, dict):
        return {name: kept(value[key], None) if wanted is None or name in wanted else None for name, key in key_names(value).items()}
    members = children(value)
    if members is None:
        return None
    return {key: kept(member, None) if wanted is None or key in wanted else None for key, member in members}


def trace_output(hook: TraceableHook, module: Any, args: Any, output: Any) -> Any:
    """The traced part of a forward hook; work that cannot be traced runs between two graphs."""
    if is_exporting() or (not hook.edits and is_enclosed()):
        return None
    if not hook.traceable:
        return between_graphs(hook, module, args, output)
    hook.traced.append(kept(output, hook.wanted))
    return None


def trace_inputs(hook: TraceablePreHook, module: Any, args: Any, kwargs: Any) -> Any:
    """The traced part of a forward pre-hook."""
    if is_exporting() or (not hook.edits and is_enclosed()):
        return None
    if not hook.traceable:
        return between_graphs(hook, module, args, kwargs)
    hook.traced.append(kept(hook.bind(args, kwargs), hook.wanted))
    return None


def is_enclosed() -> bool:
    """Whether no value can leave what dynamo traces now, and the graph cannot break; dynamo calls this function instead of tracing it.

    That is a function that torch transforms (`grad`, `vmap`), or one that an operator takes as an argument, such as a branch of
    `torch.cond`: PyTorch raises where a hook keeps a value of it. A checkpoint is none: the graph breaks there.
    """
    return is_transformed() or any(map(_traces_whole, outwards()))


def _traces_whole(frame: FrameType) -> bool:
    """Whether dynamo traces, in this frame, an operator that takes a function and that it cannot leave to eager code.

    Only frames of dynamo are looked into: in others, `self` is an object of the program, whose `__getattr__` may raise.
    """
    if not str(frame.f_globals.get("__name__")).startswith("torch._dynamo."):
        return False
    return getattr(type(frame.f_locals.get("self")), "_ALLOW_FALLBACK_TO_EAGER", True) is False


is_enclosed._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as `refuse_to_be_compiled`


WHY = "probes: gradients of values and edits need a graph break here; compile without fullgraph, or take `output` and parameters' `grad`"
_reason = {"reason": WHY} if "reason" in inspect.signature(torch.compiler.disable).parameters else {}  # since torch 2.7


@torch.compiler.disable(**_reason)  # type: ignore[untyped-decorator, no-untyped-call]  # untyped in torch
def between_graphs(hook: Any, module: Any, first: Any, second: Any) -> Any:
    """Call a hook as if nothing were compiled: the graph breaks here."""
    return hook(module, first, second)


DROPS_HOOKS = is_older(torch.__version__, OLDEST_COMPILER)
"""Whether this torch leaves hooks out of compiled graphs, or raises when it traces them."""


class OutsideGraphs(HookOfOurs):
    """A hook for releases of torch that drop hooks from compiled graphs: the first compiled function that calls the model is refused.

    A step of such a function would be without captures, and nobody would know. `torch.export` is left alone.
    """

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the hook; while dynamo traces, refuse."""
        if is_dynamo_compiling():
            refuse_to_be_compiled()
            return None
        return self.call(*args, **kwargs)


def refuse_to_be_compiled() -> bool:
    """Raise while `torch.compile` traces a call of the model; dynamo calls this function instead of tracing it.

    Raises:
        RunError: a function is compiled around the model.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if "/torch/export/" in frame.f_code.co_filename.replace(os.sep, "/"):
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    oldest = ".".join(map(str, OLDEST_COMPILER))
    raise RunError(
        f"a function that `torch.compile` compiled calls the probed model, and torch {torch.__version__} drops hooks from compiled graphs; "
        f"install torch {oldest} or later, or leave out `torch.compile` in this run"
    )


refuse_to_be_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]  # `torch.compiler.assume_constant_result` imports dynamo


def registered(call: Callable[..., Any]) -> Callable[..., Any]:
    """The form of a hook that is registered with torch."""
    return OutsideGraphs(call) if DROPS_HOOKS else call
