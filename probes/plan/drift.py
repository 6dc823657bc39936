"""Modules of a model that were replaced, wrapped or removed since its plan was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch.nn import Module

from probes.module_glob import ModuleGlob
from probes.plan.binding import Binding, Plan
from probes.plan.match_modules import isinstance_of
from probes.plan.match_tensors import matching
from probes.plan.tree import Node, Tree
from probes.spec import Probe

Trees = Mapping[str, Tree]


def renew(plan: Plan, trees: Trees, *, again: bool = False) -> tuple[Trees, dict[int, str]]:
    """Read the models again if a module of a binding has changed.

    Args:
        plan: the plan; it never changes.
        trees: the trees as they were read last; those of the plan at first.
        again: read them in any case.

    Returns:
        The trees as the models are now (the same ones if nothing changed), and what happened to the module of a binding, by
        the binding's index; a binding without an entry is unchanged.
    """
    changed = [binding for binding in plan.bindings if is_outdated(trees, binding)]
    if not changed and not again:
        return trees, {}
    now = {name: Tree(tree.model) for name, tree in trees.items()}
    texts = {binding.index: _text(binding, _known(trees, binding), node_of(now, binding)) for binding in changed}
    return now, {index: text for index, text in texts.items() if text}


def is_outdated(trees: Trees, binding: Binding) -> bool:
    """Whether another module, or none, is now at the path of a binding's module."""
    return _current(trees, binding) is not _known(trees, binding)


def node_of(trees: Trees, binding: Binding) -> Node | None:
    """The node of a binding's module; None if the model no longer has it, or has a module there that takes no hooks."""
    node = trees[binding.model].nodes.get(binding.module)
    if node is None or binding.hook == "tensor":
        return node
    return node if node.runs and not node.scripted else None


def added(plan: Plan, before: Trees, now: Trees) -> dict[str, list[str]]:
    """Modules, parameters and buffers that a glob of a probe selects, and that were not in the model before.

    Args:
        plan: the plan, which has no binding for them.
        before: the trees as they were read last.
        now: the trees as they are.

    Returns:
        Their paths by probe.
    """
    found: dict[str, list[str]] = {}
    for name, probe in {binding.name: binding.probe for binding in plan.bindings}.items():
        old, new = before[probe.model or ""], now[probe.model or ""]
        paths = [node.path for node in _selected(probe, new) if node.path not in old.nodes]
        tensors = _globs(probe.tensors)
        if tensors:
            known, present = old.tensors(), new.tensors()
            excluded = {path for text in probe.exclude for path in matching(present, ModuleGlob(text))}
            selected = dict.fromkeys(path for glob in tensors for path in matching(present, glob))
            paths += [path for path in selected if path not in known and path not in excluded]
        if paths:
            found[name] = paths
    return found


def added_text(paths: Sequence[str]) -> str:
    """A sentence on the paths that `added` has found."""
    named = ", ".join(f"`{path}`" for path in paths[:3])
    several = f"{named}{f' and {len(paths) - 3} more' if len(paths) > 3 else ''} {'was' if len(paths) == 1 else 'were'}"
    return f"{several} added to the model after the start and {'is' if len(paths) == 1 else 'are'} not captured"


def _selected(probe: Probe, tree: Tree) -> list[Node]:
    """The modules that the globs of a probe select, in the order of the model."""
    kinds = tuple(text.rpartition(".")[2] for text in probe.types)
    excluded = {node for text in probe.exclude for node in tree.matching(ModuleGlob(text))}
    matched = {node for glob in _globs(probe.modules) for node in tree.matching(glob)} - excluded
    able = (node for node in tree.nodes.values() if node in matched and node.runs and not node.scripted)
    return [node for node in able if not kinds or isinstance_of(node.module, kinds)]


def _globs(texts: Iterable[str]) -> list[ModuleGlob]:
    globs = [ModuleGlob(text) for text in texts if ":" not in text]
    return [one for one in globs if not one.is_exact]


def _known(trees: Trees, binding: Binding) -> Module | None:
    node = trees[binding.model].nodes.get(binding.module)
    return None if node is None else node.module


def _current(trees: Trees, binding: Binding) -> Module | None:
    """The module that is now at the path of a binding's module; found without calling anything."""
    tree = trees[binding.model]
    node = tree.nodes.get(binding.module)
    if node is None:
        return None
    at: Module | None = tree.model
    for level in node.raw.split(".") if node.raw else ():
        at = at._modules[level] if at is not None and level in at._modules else None
    return at


def _text(binding: Binding, before: Module | None, node: Node | None) -> str:
    kind = type(before).__name__
    if node is None:
        return f"module `{binding.module}` (a `{kind}`) was removed, or replaced by a module on which hooks do not work"
    word = "another" if node.kind == kind else "a"
    return "" if node.module is before else f"module `{binding.module}` was replaced: a `{kind}` before, {word} `{node.kind}` now"
