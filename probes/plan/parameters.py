"""The parameters and buffers that a probe names, and values of modules by reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from probes.errors import nearest
from probes.module_glob import ModuleGlob
from probes.plan.draft import Draft, Target
from probes.plan.tree import canonical, join
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES
from probes.value_path import Reference, ValuePath


def tensor_targets(draft: Draft) -> Iterator[Target]:
    """What a probe's `tensors` name: parameters and buffers, or values of modules."""
    known = draft.tree.tensors()
    for index, text in enumerate(draft.probe.tensors):
        if ":" in text:
            yield from _referenced(draft, text, index)
            continue
        pattern = ModuleGlob(text)
        excluded = [ModuleGlob(other) for other in draft.probe.exclude]
        paths = [pattern.exact] if pattern.is_exact else [path for path in known if pattern.matches(path)]
        paths = [path for path in paths if not any(other.matches(path) for other in excluded)]
        if not paths:
            draft.refuse(
                "no-match", f"pattern `{text}` matches 0 of {len(known)} parameters and buffers", nearest(text, known), "tensors", index
            )
        for path in paths:
            yield from _parameter(draft, path, known, index, pattern.is_exact)


def _parameter(draft: Draft, path: str, known: Mapping[str, Any], index: int, exact: bool) -> Iterator[Target]:
    found = known.get(path) or known.get(canonical(path))
    if found is None:
        holder, _, name = path.rpartition(".")
        original = join(holder, f"parametrizations.{name}.original")
        hint = nearest(path, known)
        if original in known or f"{original}0" in known:
            hint = f"it is parametrized: `{original if original in known else original + '0'}` is the parameter behind it"
        elif path in draft.tree.nodes:
            hint = f"it is a module: `modules: [{path}]`, or `{path}:output` for the gradient of its output"
        draft.refuse("unknown-tensor", f"the model has no parameter or buffer `{path}`", hint, "tensors", index)
        return
    node, _, tensor = found
    for value in draft.probe.value_paths:
        if value.root == "grad" and not tensor.requires_grad:
            if exact:
                message = f"`{path}` has requires_grad=False, so no gradient will reach it"
                draft.refuse("frozen-parameter", message, "unfreeze it before attaching, or take `values: [data]`", "tensors", index)
            else:
                draft.note("frozen-parameter", f"`{path}` is left out: it has requires_grad=False", "tensors", index)
            continue
        if value.root == "grad" and draft.probe.stage in (None, "increment") and _is_fully_sharded(draft, path):
            message = f"`{path}` is sharded by `fully_shard`, and PyTorch calls no hook for what one backward adds to its gradient"
            draft.refuse(
                "sharded-parameter", message, "`stage: accumulated`, or `stage: final` for what the optimizer used", "tensors", index
            )
            continue
        lazy = torch.nn.parameter.is_lazy(tensor)
        seen = Signature(DTYPE_NAMES[tensor.dtype], None if lazy else tuple(tensor.shape))
        dims = draft.probe.dims
        if dims is not None and not lazy and len(dims) != tensor.ndim:
            message = f"`dims` names {len(dims)} axes ({', '.join(dims)}), but `{path}` is {seen}"
            draft.refuse("dims-do-not-fit", message, "name every axis of it once, or take such tensors in a probe of their own", "dims")
            continue
        seen = seen.replace(dims=dims)
        yield Target(join(node.path, path.rpartition(".")[2]), node, value.root, (), exact, seen)


def _is_fully_sharded(draft: Draft, path: str) -> bool:
    """Whether a module at or above a parameter is one that FSDP2 takes care of; its library is never imported for the question."""
    library = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(library, "FSDPModule", None)
    levels = path.split(".")[:-1]
    above = (".".join(levels[:count]) for count in range(len(levels) + 1))
    return kind is not None and any(isinstance(draft.tree.nodes[name].module, kind) for name in above if name in draft.tree.nodes)


def _referenced(draft: Draft, text: str, index: int) -> Iterator[Target]:
    """The gradient of a module's value: `block:output` is `grad_output` of `block`, `block:input.x` its total."""
    reference = Reference.parse(text)
    node = draft.exact(reference.module, ModuleGlob(reference.module), "tensors", index)
    if node is None:
        return
    roots = {"output": "grad_output", "input": "grad_input_total"}
    path: ValuePath = reference.value
    if path.root not in roots:
        draft.refuse("bad-reference", f"`{text}` names `{path.root}`; a reference names an `output` or `input`", "", "tensors", index)
        return
    for value in draft.probe.value_paths:
        if value.root == "data":
            draft.refuse(
                "data-of-value",
                f"`values: [data]` of `{text}` is the value itself",
                f"`hook: forward` with `modules: [{reference.module}]`",
                "values",
            )
            continue
        yield Target(node.path, node, roots[path.root], path.keys, True)
