"""Resolving a spec against a model: patterns to targets, values to hooks, signatures through transforms."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn import Module

from probes.errors import PlanError, Problem, nearest
from probes.pattern import Pattern
from probes.plan.binding import Binding, Plan
from probes.plan.tree import Node, Tree, canonical, join
from probes.signature import Signature, SignatureError
from probes.spec import LoadedSpec, Probe, load_spec
from probes.tensors import DTYPE_NAMES
from probes.value import Reference, ValuePath

HOOK_OF = {
    "input": "pre-forward",
    "output": "forward",
    "grad_output": "backward",
    "grad_input": "backward",
    "grad_input_total": "backward",
    "grad": "tensor",
    "data": "tensor",
}


@dataclass
class Draft:
    """What one probe resolves to, while it is being resolved."""

    name: str
    probe: Probe
    tree: Tree
    loaded: LoadedSpec
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def refuse(self, code: str, message: str, hint: str = "", *path: str | int) -> None:
        """Note a problem at a place of the probe."""
        where = self.loaded.locate(("probes", self.name, *path))
        self.problems.append(replace(where, code=code, message=f"probe `{self.name}`: {message}", hint=hint))

    def note(self, code: str, message: str, *path: str | int) -> None:
        """Note something worth knowing."""
        where = self.loaded.locate(("probes", self.name, *path))
        self.notes.append(replace(where, code=code, message=f"probe `{self.name}`: {message}", hint=""))


def resolve(spec: Any, model: Module | Mapping[str, Module]) -> Plan:
    """Resolve a spec against a model; nothing of the model is called or changed.

    Args:
        spec: what `load_spec` takes, or a LoadedSpec.
        model: the model, or several by name.

    Raises:
        SpecError: the spec does not say what a spec may say.
        PlanError: the spec does not fit the model; every reason is listed.
    """
    loaded = spec if isinstance(spec, LoadedSpec) else load_spec(spec)
    trees = {name: Tree(one) for name, one in model.items()} if isinstance(model, Mapping) else {"": Tree(model)}
    drafts = [
        Draft(name, probe, _tree(loaded, name, probe, trees), loaded) for name, probe in loaded.spec.probes.items() if probe.enabled
    ]
    bindings = [binding for draft in drafts for binding in _bindings(draft)]
    problems = [problem for draft in drafts for problem in draft.problems]
    if problems:
        raise PlanError(problems)
    return Plan(
        loaded,
        trees,
        tuple(replace(binding, index=index) for index, binding in enumerate(bindings)),
        {draft.name: tuple(draft.dropped) for draft in drafts if draft.dropped},
        tuple(note for draft in drafts for note in draft.notes),
    )


def _tree(loaded: LoadedSpec, name: str, probe: Probe, trees: dict[str, Tree]) -> Tree:
    wanted = probe.model or ""
    if wanted in trees:
        return trees[wanted]
    where = loaded.locate(("probes", name))
    said = f"names model `{wanted}`" if wanted else "names no model"
    message = f"probe `{name}` {said}, but the run has {', '.join(f'`{key}`' for key in trees if key) or 'a single one'}"
    raise PlanError([replace(where, code="unknown-model", message=message, hint=nearest(wanted, trees))])


def _bindings(draft: Draft) -> Iterator[Binding]:
    """The bindings of one probe, in the order of the model, then of the values."""
    matched = list(_tensor_targets(draft)) if draft.probe.tensors else list(_module_targets(draft))
    expected = draft.probe.expect.matches if draft.probe.expect else None
    count = len({target.path for target in matched})
    if expected is not None and count != expected:
        draft.refuse("unexpected-matches", f"matches {count} targets, but `expect.matches` says {expected}", "", "expect", "matches")
    limit = draft.loaded.spec.limits.matches_per_probe
    if count > limit:
        draft.refuse("too-many-matches", f"matches {count} targets, the limit is {limit}", "narrow it or raise `limits.matches_per_probe`")
        return
    seen: set[tuple[int, str]] = set()
    for target in matched:
        name = (id(target.node.module), target.path if target.root in ("grad", "data") else target.value)
        if name not in seen:
            seen.add(name)
            yield _binding(draft, target)


@dataclass(frozen=True)
class Target:
    """One value of one target."""

    path: str
    node: Node
    root: str
    keys: tuple[str, ...]
    exact: bool
    seen: Signature = Signature()

    @property
    def value(self) -> str:
        """The value path as text."""
        return ".".join((self.root, *self.keys))


def _binding(draft: Draft, target: Target) -> Binding:
    probe, node = draft.probe, target.node
    seen = target.seen if target.seen.dtype else Signature(dims=probe.dims)
    return Binding(
        index=0,
        name=draft.name,
        probe=probe,
        model=probe.model or "",
        target=target.path,
        module=node.path,
        raw=node.raw,
        aliases=tuple(node.aliases),
        hook=HOOK_OF[target.root],
        root=target.root,
        keys=target.keys,
        stage=_stage(probe, target),
        exact=target.exact,
        kind=node.kind,
        seen=seen,
        stored=_fold(draft, seen),
        neutral=target.root != "grad_input",
    )


def _stage(probe: Probe, target: Target) -> str:
    return (probe.stage or "increment") if target.root == "grad" else ""


def _fold(draft: Draft, signature: Signature) -> Signature:
    for index, transform in enumerate(draft.probe.transforms):
        try:
            signature = transform.out(signature)
        except SignatureError as error:
            draft.refuse("transform-does-not-fit", f"transform `{transform.kind}`: {error}", "", "transforms", index)
            return Signature()
    return signature


# Modules


def _module_targets(draft: Draft) -> Iterator[Target]:
    """The module values a probe names, in the order of the model."""
    probe = draft.probe
    nodes = list(_modules(draft))
    for node, exact in nodes:
        for value in probe.value_paths:
            yield Target(node.path, node, value.root, value.keys, exact)


def _modules(draft: Draft) -> Iterable[tuple[Node, bool]]:
    probe = draft.probe
    types = _types(draft)
    excluded = [Pattern(text) for text in probe.exclude]
    found: dict[str, tuple[Node, bool]] = {}
    for index, text in enumerate(probe.modules):
        pattern = Pattern(text)
        if pattern.is_exact:
            node = _exact(draft, text, pattern, index)
            if node is not None:
                found[node.path] = (node, True)
            continue
        matches = [node for node in draft.tree.nodes.values() if pattern.matches(node.path)]
        for node in _kept(draft, matches):
            if not any(other.matches(node.path) for other in excluded) and (types is None or isinstance_of(node.module, types)):
                found.setdefault(node.path, (node, False))
        if not any(pattern.matches(path) for path in found):
            _no_match(draft, text, index, matches, types)
    order = {path: place for place, path in enumerate(draft.tree.nodes)}
    return sorted(found.values(), key=lambda pair: order[pair[0].path])


def _kept(draft: Draft, matches: list[Node]) -> Iterator[Node]:
    """The matches that can fire, each module under its first matching path."""
    seen: set[int] = set()
    for node in matches:
        if not node.runs or node.scripted:
            draft.dropped.append(node.path)
        elif id(node.module) not in seen:
            seen.add(id(node.module))
            yield node


def _exact(draft: Draft, text: str, pattern: Pattern, index: int) -> Node | None:
    path = pattern.exact
    node = draft.tree.nodes.get(path) or draft.tree.nodes.get(canonical(path))
    if node is None:
        hint = nearest(path, draft.tree.nodes)
        hint = hint or ("it is a parameter: use `hook: tensor` and `tensors`" if path in draft.tree.tensors() else "")
        draft.refuse("unknown-module", f"the model has no module `{text}`", hint, "modules", index)
    elif not node.runs:
        children = f"`{join(path, '*')}` names its members"
        draft.refuse("module-without-forward", f"`{text}` is a {node.kind}, which has no `forward` and never fires", children, "modules", index)
    elif node.scripted:
        message = f"`{text}` is a ScriptModule, on which hooks do not work"
        draft.refuse("scripted-module", message, "attach before `torch.jit.script`", "modules", index)
    else:
        return node
    return None


def _no_match(draft: Draft, text: str, index: int, matches: list[Node], types: Any) -> None:
    total = len(draft.tree.nodes)
    if matches:
        kinds = ", ".join(sorted({node.kind for node in matches})[:6])
        why = f"pattern `{text}` matches {len(matches)} modules, but none that can fire and is left by `types` and `exclude` ({kinds})"
        draft.refuse("no-match", why, "", "modules", index)
        return
    close = nearest(text, draft.tree.nodes)
    deeper = [path for path in draft.tree.nodes if Pattern(f"**.{text}").matches(path)] if not text.startswith("**") else []
    hint = f"`**.{text}` matches {len(deeper)}, such as `{deeper[0]}`" if deeper else close
    draft.refuse("no-match", f"pattern `{text}` matches 0 of {total} modules", hint, "modules", index)


def _types(draft: Draft) -> tuple[str | type, ...] | None:
    """What `types` says: bare class names as they are, dotted ones as classes already imported."""
    if not draft.probe.types:
        return None
    found: list[str | type] = []
    for index, text in enumerate(draft.probe.types):
        module, _, name = text.rpartition(".")
        if not module:
            found.append(text)
            _known_type(draft, text, index)
            continue
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            found.append(kind)
        else:
            draft.refuse("unknown-type", f"type `{text}` is not a class of an imported module", "", "types", index)
    return tuple(found)


def _known_type(draft: Draft, name: str, index: int) -> None:
    known = {base.__name__ for node in draft.tree.nodes.values() for base in type(node.module).__mro__}
    if name not in known:
        draft.refuse("unknown-type", f"no module of the model is a `{name}`", nearest(name, known), "types", index)


def isinstance_of(module: Module, types: tuple[str | type, ...]) -> bool:
    """Whether a module is of one of the types: a class, or a bare class name among its bases."""
    names = {base.__name__ for base in type(module).__mro__}
    return any(kind in names if isinstance(kind, str) else isinstance(module, kind) for kind in types)


# Parameters, buffers, and values by reference


def _tensor_targets(draft: Draft) -> Iterator[Target]:
    """What a probe's `tensors` name: parameters and buffers, or values of modules."""
    known = draft.tree.tensors()
    for index, text in enumerate(draft.probe.tensors):
        if ":" in text:
            yield from _referenced(draft, text, index)
            continue
        pattern = Pattern(text)
        excluded = [Pattern(other) for other in draft.probe.exclude]
        paths = [pattern.exact] if pattern.is_exact else [path for path in known if pattern.matches(path)]
        paths = [path for path in paths if not any(other.matches(path) for other in excluded)]
        if not paths:
            draft.refuse("no-match", f"pattern `{text}` matches 0 of {len(known)} parameters and buffers", nearest(text, known), "tensors", index)
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
        lazy = isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
        seen = Signature(DTYPE_NAMES[tensor.dtype], None if lazy else tuple(tensor.shape), draft.probe.dims)
        yield Target(join(node.path, path.rpartition(".")[2]), node, value.root, (), exact, seen)


def _referenced(draft: Draft, text: str, index: int) -> Iterator[Target]:
    """The gradient of a module's value: `block:output` is `grad_output` of `block`, `block:input.x` its total."""
    reference = Reference.parse(text)
    node = _exact(draft, reference.module, Pattern(reference.module), index)
    if node is None:
        return
    roots = {"output": "grad_output", "input": "grad_input_total"}
    path: ValuePath = reference.value
    if path.root not in roots:
        draft.refuse("bad-reference", f"`{text}` names `{path.root}`; a reference names an `output` or `input`", "", "tensors", index)
        return
    for value in draft.probe.value_paths:
        if value.root == "data":
            draft.refuse("data-of-value", f"`values: [data]` of `{text}` is the value itself", f"`hook: forward` with `modules: [{reference.module}]`", "values")
            continue
        yield Target(node.path, node, roots[path.root], path.keys, True)
