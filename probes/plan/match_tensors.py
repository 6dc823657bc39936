"""The parameters and buffers that a probe names, and values of modules by reference."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.nn.parameter import Parameter, is_lazy

from probes.errors import nearest
from probes.module_glob import ModuleGlob
from probes.plan.draft import MatchedValue, ProbeDraft
from probes.plan.tree import Node, join
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES
from probes.value_path import OF_OPTIMIZER, Reference, ValuePath

Tensors = dict[str, tuple[Node, str, Tensor]]
MOST_NAMED = 3


def tensor_values(draft: ProbeDraft) -> Iterator[MatchedValue]:
    """The values that a probe's `tensors` select: parameters and buffers, or values of modules."""
    known = draft.tree.tensors()
    excluded = _excluded(draft, known)
    for index, text in enumerate(draft.probe.tensors):
        if ":" in text:
            yield from _referenced(draft, text, index)
            continue
        exact = ModuleGlob(text).is_exact
        paths = [path for path in _paths(draft, text, known, index) if path not in excluded]
        for path in paths:
            yield from _values(draft, path, known[path], index, exact)
        if not exact:
            _note_frozen(draft, [path for path in paths if not known[path][2].requires_grad], known, index)


def _paths(draft: ProbeDraft, text: str, known: Tensors, index: int) -> list[str]:
    """The canonical paths of the tensors that a text names; none after adding a problem."""
    glob = ModuleGlob(text)
    if glob.is_exact:
        path = glob.exact
        found = _canonical(draft, path, known)
        if found is None:
            draft.refuse("unknown-tensor", f"the model has no parameter or buffer `{path}`", _instead(draft, path, known), "tensors", index)
            return []
        if found != path:
            draft.note_wrapped(path, found, "tensors", index)
        return [found]
    matched = matching(known, glob)
    if not matched:
        message = f"glob `{text}` matches 0 of {len(known)} parameters and buffers"
        draft.refuse("no-match", message, nearest(text, known), "tensors", index)
    elif not glob.matches(matched[0]):
        draft.note_wrapped(text, matched[0], "tensors", index)
    return matched


def matching(known: Tensors, glob: ModuleGlob) -> list[str]:
    """The tensors that a pattern matches by their canonical paths, else by their paths in `named_parameters`."""
    found = [path for path in known if glob.matches(path)]
    return found or [path for path, (node, name, _) in known.items() if glob.matches(join(node.raw, name))]


def _excluded(draft: ProbeDraft, known: Tensors) -> set[str]:
    """The paths that `exclude` removes; a pattern that matches no tensor is a problem, since more would be captured than is meant."""
    found: set[str] = set()
    for index, text in enumerate(draft.probe.exclude):
        matches = matching(known, ModuleGlob(text))
        found.update(matches)
        if not matches:
            is_module = bool(draft.tree.matching(ModuleGlob(text)))
            hint = f"`{join(text, '**')}` matches those of the module" if is_module else nearest(text, known)
            draft.refuse("no-match", f"`{text}` matches 0 of {len(known)} parameters and buffers", hint, "exclude", index)
    return found


def _canonical(draft: ProbeDraft, path: str, known: Tensors) -> str | None:
    """The canonical path of a tensor, which may be written as in `named_parameters`."""
    if path in known:
        return path
    holder, _, name = path.rpartition(".")
    node = draft.tree.find(holder)
    found = join(node.path, name) if node is not None else ""
    return found if found in known else None


def _instead(draft: ProbeDraft, path: str, known: Tensors) -> str:
    """Advice for a path that is not a tensor."""
    holder, _, name = path.rpartition(".")
    original = join(holder, f"parametrizations.{name}.original")
    for behind in (original, f"{original}0"):
        if behind in known:
            return f"it is parametrized: `{behind}` is the parameter that it is computed from"
    if path in draft.tree.nodes:
        return f"it is a module: `modules: [{path}]`, or `{path}:output` for the gradient of its output"
    return nearest(path, known)


def _values(draft: ProbeDraft, path: str, found: tuple[Node, str, Tensor], index: int, exact: bool) -> Iterator[MatchedValue]:
    node, name, tensor = found
    for value in draft.probe.value_paths:
        if value.root != "data" and not _is_trained(draft, path, tensor, index, exact):
            continue
        if value.root == "grad" and draft.probe.stage in (None, "increment") and _is_fully_sharded(draft, path):
            message = f"`{path}` is sharded by `fully_shard`, and PyTorch calls no hook for what one backward adds to its gradient"
            hint = "write `stage: accumulated`, or `stage: final` for the gradient that the optimizer used"
            draft.refuse("sharded-parameter", message, hint, "tensors", index)
            continue
        if value.root == "state":
            yield MatchedValue(join(node.path, name), node, value.root, value.keys, exact)
            continue
        seen = Signature(DTYPE_NAMES[tensor.dtype], None if is_lazy(tensor) else tuple(tensor.shape))
        dims = draft.probe.dims
        if dims is not None and not is_lazy(tensor) and len(dims) != tensor.ndim:
            message = f"`dims` names {len(dims)} axes ({', '.join(dims)}), but `{path}` is `{seen}`"
            draft.refuse("dims-do-not-fit", message, "name each axis once, or capture such tensors in another probe", "dims")
            continue
        yield MatchedValue(join(node.path, name), node, value.root, (), exact, seen=seen.replace(dims=dims))


def _is_trained(draft: ProbeDraft, path: str, tensor: Tensor, index: int, exact: bool) -> bool:
    """Whether a tensor has a gradient, or may have one in a later epoch."""
    if tensor.requires_grad:
        return True
    if not _can_be_unfrozen(tensor):
        if exact:
            message = f"`{path}` never has a gradient: it is a buffer, or not of a floating-point type"
            draft.refuse("frozen-parameter", message, "write `values: [data]`", "tensors", index)
        return False
    if exact and draft.probe.when.covers(0, None, 0):
        hint = "if it is unfrozen later, begin then: `when: {epochs: {from: N}}`; or write `values: [data]`"
        draft.refuse("frozen-parameter", f"`{path}` has `requires_grad=False`, so it has no gradient", hint, "tensors", index)
        return False
    return True


def _can_be_unfrozen(tensor: Tensor) -> bool:
    return isinstance(tensor, Parameter) and (tensor.is_floating_point() or tensor.is_complex())


def _note_frozen(draft: ProbeDraft, frozen: Iterable[str], known: Tensors, index: int) -> None:
    """Note tensors that a glob matches without a gradient: for now, or always."""
    if all(value.root == "data" for value in draft.probe.value_paths):
        return
    later = [path for path in frozen if _can_be_unfrozen(known[path][2])]
    never = [path for path in frozen if not _can_be_unfrozen(known[path][2])]
    if later:
        message = (
            f"{_listed(later)}: `requires_grad=False`; gradients are captured from the first epoch that begins with `requires_grad=True`"
        )
        draft.note("frozen-parameter", message, "tensors", index)
    if never:
        draft.note("frozen-parameter", f"{_listed(never)}: left out, since no gradient is possible", "tensors", index)


def _listed(paths: list[str]) -> str:
    named = ", ".join(f"`{path}`" for path in paths[:MOST_NAMED])
    return named + (f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else "")


def _is_fully_sharded(draft: ProbeDraft, path: str) -> bool:
    """Whether FSDP2 manages a module at or above a parameter; its library is not imported to find out."""
    library = sys.modules.get("torch.distributed.fsdp")
    kind: Any = getattr(library, "FSDPModule", None)
    return kind is not None and any(isinstance(node.module, kind) for node in draft.tree.around(path.rpartition(".")[0]))


def _referenced(draft: ProbeDraft, text: str, index: int) -> Iterator[MatchedValue]:
    """The gradient of a module's value: `block:output` is `grad_output` of `block`, `block:input.x` its total."""
    reference = Reference.parse(text)
    node = draft.exact(reference.module, ModuleGlob(reference.module), "tensors", index)
    if node is None:
        return
    roots = {"output": "grad_output", "input": "grad_input_total"}
    path: ValuePath = reference.value
    if path.root not in roots:
        message = f"`{text}` names `{path.root}`; a reference names an `output` or `input`"
        draft.refuse("bad-reference", message, "", "tensors", index)
        return
    for value in draft.probe.value_paths:
        if value.root in OF_OPTIMIZER:
            message = f"`values: [{value}]` of `{text}` belongs to a parameter, which an optimizer steps"
            draft.refuse("value-and-place", message, "list parameters under `tensors`", "values")
            continue
        if value.root == "data":
            message = f"`values: [data]` of `{text}` is the value of a module"
            draft.refuse("data-of-value", message, f"write `hook: forward` with `modules: [{reference.module}]`", "values")
            continue
        yield MatchedValue(node.path, node, roots[path.root], path.keys, True)
