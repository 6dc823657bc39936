"""Torch functions under `ops` of a spec: whether they exist, and which calls cannot be seen."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isgeneratorfunction
from typing import Any

import torch
from torch import nn

from probes.errors import nearest
from probes.plan.draft import MatchedValue, ProbeDraft
from probes.value_path import OperationName

NAMESPACES = (torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.fft, torch.special)
REFLECTED = ("radd", "rsub", "rmul", "rdiv", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "ror", "rxor")


def named_function(operation: OperationName) -> Callable[..., Any] | None:
    """The function with a dotted name; None for a bare name.

    Raises:
        LookupError: there is none.
    """
    _, *parts = operation.path.split(".")
    found: Any = torch
    if not parts:
        return None
    for part in parts:
        found = getattr(found, part, None)
    if not callable(found):
        raise LookupError(operation.path)
    checked: Callable[..., Any] = found
    return checked


def known_names() -> set[str]:
    """The bare names of torch functions and methods, without the underscores of operators."""
    names = {name for space in NAMESPACES for name in dir(space) if callable(getattr(space, name, None))}
    plain = {name[2:-2] if name.startswith("__") and name.endswith("__") else name for name in names}
    return {name for name in plain if not name.startswith("_") and not name[:1].isupper()} | {*REFLECTED}


def check_operations(draft: ProbeDraft) -> None:
    """Refuse names of no torch function."""
    for index, text in enumerate(draft.probe.ops):
        operation = OperationName.parse(text)
        dotted = "." in operation.path
        try:
            known = named_function(operation) is not None or operation.path in known_names()
        except LookupError:
            known = False
        if not known:
            near = nearest(operation.name, known_names())
            hint = near or "`probes tree --watch --ops SCRIPT` lists what each module calls"
            what = "there is no function" if dotted else "torch has no function or method"
            draft.refuse("unknown-operation", f"{what} `{operation.path}`", hint, "ops", index)


def check_operation_of(draft: ProbeDraft, target: MatchedValue) -> None:
    """Refuse operations of modules whose forward cannot be observed, and edits without effect."""
    region = draft.tree.compiled_region(target.node.path)
    if region is not None:
        message = f"`{target.path}` is compiled, and the operations of a graph cannot be seen"
        draft.refuse("operation-not-seen", message, "attach before `torch.compile`, or capture `output` of a module", "ops")
    if isgeneratorfunction(target.node.module.forward):
        message = f"the forward of `{target.path}` is a generator, whose body runs after the module has returned"
        draft.refuse("operation-not-seen", message, "list the modules that it calls under `modules`", "ops")
    name = OperationName.parse(target.op).name
    if draft.probe.edit is not None and target.root == "output" and name.endswith("_"):
        message = f"`{name}` writes to its input, and what it returns is mostly not used"
        draft.refuse("operation-not-seen", message, "edit `input.0` of the next operation, or the output of a module", "edit")
    fused = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
    if isinstance(target.node.module, fused) and not {*draft.probe.when.phases} <= {"train"}:
        message = (
            f"`ops` on `{target.path}` turns off the fused kernel of `{target.node.kind}` in `eval`: the last bits of values may differ"
        )
        draft.note("fast-path", message)
