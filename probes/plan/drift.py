"""Whether the model is still the one that the plan was made for: modules replaced, wrapped or gone since."""

from __future__ import annotations

from torch.nn import Module

from probes.plan.binding import Binding, Plan
from probes.plan.tree import Node, Tree


def renew(plan: Plan) -> dict[int, str]:
    """Bring the plan's trees up to date with the models.

    Returns:
        What happened to the module of a binding, by the binding's index; a binding without an entry is as it was.
    """
    drifted = [binding for binding in plan.bindings if _there(plan, binding) is not _known(plan, binding)]
    if not drifted:
        return {}
    before = {binding.index: _known(plan, binding) for binding in drifted}
    for name, tree in plan.trees.items():
        plan.trees[name] = Tree(tree.model)
    found = {binding.index: _told(binding, before[binding.index], node_of(plan, binding)) for binding in drifted}
    return {index: text for index, text in found.items() if text}


def node_of(plan: Plan, binding: Binding) -> Node | None:
    """The node of a binding's module; None where the model has it no more."""
    node = plan.trees[binding.model].nodes.get(binding.module)
    if node is None or binding.hook == "tensor":
        return node
    return node if node.runs and not node.scripted else None


def _known(plan: Plan, binding: Binding) -> Module | None:
    node = plan.trees[binding.model].nodes.get(binding.module)
    return None if node is None else node.module


def _there(plan: Plan, binding: Binding) -> Module | None:
    """The module that stands now where the tree met the binding's; read without calling anything."""
    tree = plan.trees[binding.model]
    node = tree.nodes.get(binding.module)
    if node is None:
        return None
    at: Module | None = tree.model
    for level in node.raw.split(".") if node.raw else ():
        at = at._modules[level] if at is not None and level in at._modules else None
    return at


def _told(binding: Binding, before: Module | None, node: Node | None) -> str:
    kind = type(before).__name__
    if node is None:
        return f"module `{binding.module}` (a {kind}) is gone, or is one now that hooks do not work on"
    return "" if node.module is before else f"module `{binding.module}` was replaced: a {kind} before, another {node.kind} now"
