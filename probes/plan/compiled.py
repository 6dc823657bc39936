"""What the plan knows of torch.compile: which targets lie in a compiled region, and what cannot be done in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.nn import Module

from probes.plan.binding import Binding
from probes.plan.draft import Draft
from probes.plan.tree import Node, Tree


def region(tree: Tree, path: str) -> Node | None:
    """The outermost compiled module at or above a path; None where no module around it is compiled.

    A compiled *function* that calls the model leaves no trace on it and is not seen.
    """
    levels = path.split(".") if path else []
    above = [".".join(levels[:count]) for count in range(len(levels) + 1)]
    return next((tree.nodes[name] for name in above if name in tree.nodes and tree.nodes[name].compiled), None)


def is_fullgraph(node: Node) -> bool:
    """Whether a compiled module allows no graph breaks."""
    contexts = [getattr(wrapper, "dynamo_ctx", None) for wrapper in node.wrappers]
    return any(getattr(context, "fullgraph", False) for context in [*contexts, *_own_context(node.module)])


def _own_context(module: Module) -> list[Any]:
    """The settings of `Module.compile`, which torch keeps in the closure of the compiled call and nowhere else."""
    call = getattr(module, "_compiled_call_impl", None)
    cells = getattr(call, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells if hasattr(cell.cell_contents, "fullgraph")]


def refuse_in_fullgraph(drafts: Sequence[Draft], bindings: Sequence[Binding]) -> None:
    """Refuse what needs a graph break where none is allowed: gradients of values, and edits."""
    by_name = {draft.name: draft for draft in drafts}
    for binding in bindings:
        if binding.hook == "tensor" or (binding.root in ("input", "output") and binding.probe.edit is None):
            continue
        draft = by_name[binding.name]
        found = region(draft.tree, binding.module)
        if found is not None and is_fullgraph(found):
            what = f"`{binding.value}`" if binding.probe.edit is None else f"an edit of `{binding.value}`"
            whole = f"`{found.path}`" if found.path else "the model"
            draft.refuse(
                "fullgraph",
                f"{what} of `{binding.target}` needs a graph break, and {whole} is compiled with fullgraph=True",
                "compile it without fullgraph, or take `output` and parameters' `grad`, which need none",
            )
