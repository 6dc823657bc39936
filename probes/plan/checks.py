"""Checks of a plan: of the bindings of all probes together, of the targets of rules, and of the operations that a probe names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import isgeneratorfunction
from math import prod
from typing import Any

import torch
from torch import nn

from probes.errors import Problem, nearest
from probes.module_glob import ModuleGlob
from probes.optional_package import OLDEST_COMPILER, is_older
from probes.plan.binding import Binding
from probes.plan.draft import MatchedValue, ProbeDraft
from probes.spec import LoadedSpec
from probes.value_path import OF_OPTIMIZER, OperationName

COUNTERS = ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats")
NAMESPACES = (torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.fft, torch.special)
REFLECTED = ("radd", "rsub", "rmul", "rdiv", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "ror", "rxor")
Bound = Sequence[tuple[ProbeDraft, Sequence[Binding]]]
"""Every probe with its bindings."""


def check(bound: Bound) -> None:
    """Add the problems and notes of all bindings to their probes."""
    _one_edit_of_a_value(bound)
    _possible_edits(bound)
    _compiled_by_an_old_torch(bound)
    _compiled_graphs(bound)
    _fused_kernels(bound)
    _limits_of_sinks(bound)
    _counted_memory(bound)
    _trigger_buffers(bound)


def _pairs(bound: Bound) -> Iterator[tuple[ProbeDraft, Binding]]:
    return ((draft, binding) for draft, bindings in bound for binding in bindings)


# Edits


def _one_edit_of_a_value(bound: Bound) -> None:
    seen: dict[tuple[str, str, str], str] = {}
    for draft, binding in _pairs(bound):
        place = (binding.model, binding.target, binding.value)
        if draft.probe.edit is None:
            continue
        if place in seen:
            message = f"`{binding.value}` of `{binding.target}` is also edited by probe `{seen[place]}`; a value can have one edit"
            draft.refuse("two-edits", message, "remove one of the two", "edit")
        seen[place] = draft.name


def _possible_edits(bound: Bound) -> None:
    for draft, binding in _pairs(bound):
        edit = draft.probe.edit
        if edit is None:
            continue
        if binding.root == "data":
            message = "the data of a parameter cannot be edited, only values that are computed from it"
            draft.refuse("edit-of-data", message, "edit an `output`, or a `grad`", "edit")
        if binding.root in OF_OPTIMIZER:
            message = f"`{binding.value}` is what an optimizer has done, and cannot be edited"
            draft.refuse("edit-of-data", message, "edit a `grad`", "edit")
        if binding.stage == "final":
            message = "the optimizer has already used a `final` gradient"
            draft.refuse("edit-too-late", message, "write `stage: accumulated`", "stage")
        if edit.gradients_only and not binding.root.startswith("grad"):
            message = f"edit `{edit.kind}` is for gradients, and `{binding.value}` is not one"
            draft.refuse("edit-of-gradients", message, "name a gradient in `values`, such as grad_output", "edit")


# Compiled modules and fused kernels


def _compiled_by_an_old_torch(bound: Bound) -> None:
    """Refuse hooks in a compiled module if torch would drop them from the graph, or raise during training."""
    oldest = ".".join(map(str, OLDEST_COMPILER))
    for draft, binding in _pairs(bound):
        region = draft.tree.compiled_region(binding.module)
        if region is not None and is_older(torch.__version__, OLDEST_COMPILER):
            whole = f"`{region.path}`" if region.path else "the model"
            message = f"{whole} is compiled, and torch {torch.__version__} drops hooks from compiled graphs"
            draft.refuse("old-compiler", message, f"install torch {oldest} or later, or leave out `torch.compile` in this run")


def _compiled_graphs(bound: Bound) -> None:
    """Refuse what a compiled region does not allow, and note what breaks its graph: gradients of values, and edits."""
    strict = getattr(sys.modules.get("torch._dynamo.config"), "error_on_recompile", False)
    for draft, bindings in bound:
        breaking = []
        for binding in bindings:
            region = draft.tree.compiled_region(binding.module) if binding.hook != "tensor" else None
            if region is None:
                continue
            whole = f"`{region.path}`" if region.path else "the model"
            if strict and (draft.probe.when.steps or draft.probe.when.epochs):
                message = f"{whole} is compiled again where the schedule changes, and `error_on_recompile` ends the training there"
                draft.refuse("recompile", message, "capture every step (no `when`), or leave `error_on_recompile` off")
                break
            if binding.root in ("input", "output") and draft.probe.edit is None:
                continue
            what = f"`{binding.value}`" if draft.probe.edit is None else f"an edit of `{binding.value}`"
            if not region.fullgraph:
                breaking.append(f"{what} of `{binding.target}`")
                continue
            message = f"{what} of `{binding.target}` needs a graph break, and {whole} is compiled with `fullgraph=True`"
            draft.refuse("fullgraph", message, "compile it without fullgraph, or capture `output` and parameters' `grad`, which need none")
        if breaking:
            more = f" (and {len(breaking) - 1} more)" if len(breaking) > 1 else ""
            draft.note(
                "graph-break",
                f"{breaking[0]}{more} breaks the compiled graph; a function that calls the module in a loop, such as that of "
                "`nn.Sequential`, runs uncompiled",
            )


def _fused_kernels(bound: Bound) -> None:
    """Note hooks that turn off the fused kernel that `TransformerEncoderLayer` uses in `eval` without gradients."""
    for draft, bindings in bound:
        if set(draft.probe.when.phases) <= {"train"}:
            continue
        inside = [binding.target for binding in bindings if binding.hook != "tensor" and _in_encoder_layer(draft, binding.module)]
        if inside:
            more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
            draft.note(
                "fast-path",
                f"hooks on `{inside[0]}`{more} turn off the fused kernel of `TransformerEncoderLayer` in `eval`: other kernels run there "
                "than without probes, and the last bits of values may differ",
            )


def _in_encoder_layer(draft: ProbeDraft, path: str) -> bool:
    return any(node.path and isinstance(node.module, nn.TransformerEncoderLayer) for node in draft.tree.around(path))


# Sinks


def _limits_of_sinks(bound: Bound) -> None:
    """Refuse captures larger than a sink takes; if only a run shows the size, the sink is disabled then."""
    for draft, bindings in bound:
        for name, sink in draft.loaded.spec.sinks_of(draft.name).items():
            limit = sink.most_elements()
            found = next(filter(None, (_too_large(binding, limit) for binding in bindings)), "") if limit is not None else ""
            if found:
                place = ("sinks", draft.probe.sinks.index(name)) if name in draft.probe.sinks else ()
                hint = "add a transform that makes it smaller, such as `stats` or `norm`" + _other_sink(draft)
                draft.refuse("too-large-for-sink", f"sink `{name}` takes at most {limit} elements, and {found}", hint, *place)


def _too_large(binding: Binding, limit: int) -> str:
    """Why a capture does not fit, as far as its size is known; empty if it may fit."""
    sizes = binding.stored.shape
    least = prod(size for size in sizes if size is not None) if sizes is not None else 0
    value = f"`{binding.value}` of {f'`{binding.target}`' if binding.target else 'the model'}"
    if least > limit:
        return f"{value} has {least}" + (" or more" if sizes is not None and None in sizes else "")
    raw = sizes is None and not binding.probe.transforms and binding.root != "loop"  # what a loop logs is a number, as a rule
    return f"no transform makes {value} small" if raw else ""


def _other_sink(draft: ProbeDraft) -> str:
    """Advice for a spec that declares an entry of `sinks` without a limit."""
    spec = draft.loaded.spec
    others = [name for name in spec.sinks if name not in spec.reading_sinks or spec.reading_sinks[name].most_elements() is None]
    return f", or write `sinks: [{others[0]}]`" if others else ""


# Memory


def memory_counters(device: torch.device) -> Any:
    """The module of torch that counts the memory of a device; None if there is none."""
    if device.type in ("cpu", "meta"):
        return None
    found = torch.get_device_module(device)
    return found if all(hasattr(found, name) for name in COUNTERS) else None


def _counted_memory(bound: Bound) -> None:
    """Refuse `memory` on devices without memory counters, and in compiled modules, where it would measure the whole graph."""
    for draft, bindings in bound:
        binding = next((binding for binding in bindings if binding.root == "memory"), None)
        if binding is None:
            continue
        device = draft.tree.device()
        place = ("values", draft.probe.values.index("memory"))
        if memory_counters(device) is None:
            message = f"`memory` is counted by the allocator of an accelerator, and the model is on `{device}`, which has none"
            draft.refuse("memory-not-counted", message, "move the model to its device before the probes are attached", *place)
        elif draft.tree.compiled_region(binding.module) is not None:
            message = f"`{binding.target}` is compiled, and the memory of single modules cannot be measured in a graph"
            draft.refuse("memory-not-counted", message, "attach before `torch.compile`, or leave the module out", *place)
        else:
            message = "each call resets the peak counter of the device, which `torch.cuda.max_memory_allocated` reads"
            draft.note("memory-peak", message)


# Triggers


def _trigger_buffers(bound: Bound) -> None:
    """Refuse triggers that keep more than `limits.buffer_bytes`, as far as sizes are known; larger captures are dropped in the run."""
    triggered = [(draft, bindings) for draft, bindings in bound if draft.probe.when.trigger is not None]
    per_step = {draft.name: sum(binding.stored.nbytes or 0 for binding in bindings) for draft, bindings in triggered}
    problem = buffer_problem(triggered[0][0].loaded, per_step) if triggered else None
    if problem is not None:
        triggered[0][0].problems.append(problem)


def held_bytes(loaded: LoadedSpec, per_step: Mapping[str, int]) -> dict[str, int]:
    """The largest number of bytes that wait for a trigger, by probe.

    Args:
        loaded: the spec.
        per_step: bytes of one step, of each probe with a trigger.
    """
    triggers = {name: loaded.spec.probes[name].when.trigger for name in per_step}
    return {name: per_step[name] * (trigger.before + 1) for name, trigger in triggers.items() if trigger is not None}


def buffer_problem(loaded: LoadedSpec, per_step: Mapping[str, int]) -> Problem | None:
    """The reason why the captures that wait for triggers exceed `limits.buffer_bytes`; None if they do not."""
    limit, held = loaded.spec.limits.buffer_bytes, held_bytes(loaded, per_step)
    needed = sum(held.values())
    if limit is None or needed <= limit:
        return None
    name = max(held, key=lambda probe: held[probe])
    steps = held[name] // per_step[name]
    fitting = (limit - (needed - held[name])) // per_step[name] - 1
    lower = f"write `before: {fitting}`" if fitting >= 0 else "add a transform that makes the values smaller, such as `stats`"
    return loaded.locate(("probes", name, "when", "trigger", "before")).at(
        code="ring-too-large",
        message=f"probe `{name}`: `before: {steps - 1}` keeps {steps} steps in memory; all captures that wait for a trigger need at least "
        f"{needed:,} bytes, and `limits.buffer_bytes` is {limit:,}",
        hint=f"{lower}, or raise `limits.buffer_bytes`",
    )


# Rules


def rule_problems(loaded: LoadedSpec, bound: Bound) -> Iterator[Problem]:
    """The targets of rules that no target of their probe matches."""
    targets = {draft.name: sorted({binding.target for binding in bindings}) for draft, bindings in bound}
    for name, rule in loaded.spec.rules.items():
        known = targets.get(rule.probe, [])
        for index, text in enumerate(rule.targets if known else ()):
            if text not in known and not any(map(ModuleGlob(text).matches, known)):
                message = f"rule `{name}`: `{text}` matches none of the {len(known)} targets of probe `{rule.probe}`"
                hint = nearest(text, known) or f"its targets are such as `{known[0]}`"
                yield loaded.locate(("rules", name, "targets", index)).at(code="no-match", message=message, hint=hint)


# Operations


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
