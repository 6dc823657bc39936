"""Modules of a model that were replaced, wrapped or removed since its plan was made."""

from __future__ import annotations

from collections.abc import Mapping

from torch.nn import Module

from probes.plan.binding import Binding, Plan
from probes.plan.tree import Node, Tree

Trees = Mapping[str, Tree]


def renew(plan: Plan, trees: Trees) -> tuple[Trees, dict[int, str]]:
    """Read the models again if a module of a binding has changed.

    Args:
        plan: the plan; it never changes.
        trees: the trees as they were read last; those of the plan at first.

    Returns:
        The trees as the models are now (the same ones if nothing changed), and what happened to the module of a binding, by
        the binding's index; a binding without an entry is unchanged.
    """
    changed = [binding for binding in plan.bindings if _current(trees, binding) is not _known(trees, binding)]
    if not changed:
        return trees, {}
    now = {name: Tree(tree.model) for name, tree in trees.items()}
    texts = {binding.index: _text(binding, _known(trees, binding), node_of(now, binding)) for binding in changed}
    return now, {index: text for index, text in texts.items() if text}


def node_of(trees: Trees, binding: Binding) -> Node | None:
    """The node of a binding's module; None if the model no longer has it, or has a module there that takes no hooks."""
    node = trees[binding.model].nodes.get(binding.module)
    if node is None or binding.hook == "tensor":
        return node
    return node if node.runs and not node.scripted else None


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
    return "" if node.module is before else f"module `{binding.module}` was replaced: a `{kind}` before, another `{node.kind}` now"
