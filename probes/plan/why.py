"""Why a probe looks at a module, or why it does not."""

from __future__ import annotations

from collections.abc import Iterator

from probes.errors import UsageError, nearest
from probes.module_glob import ModuleGlob, levels_of
from probes.plan.binding import Plan
from probes.plan.modules import isinstance_of
from probes.plan.tree import Node, Tree
from probes.spec import Probe


def why(plan: Plan, path: str) -> list[tuple[str, str]]:
    """Each probe of a plan, and what it has to do with a module.

    Args:
        plan: the plan.
        path: canonical path of a module.

    Raises:
        UsageError: no model of the plan has such a module.
    """
    trees = {name: tree for name, tree in plan.trees.items() if path in tree.nodes}
    if not trees:
        known = [other for tree in plan.trees.values() for other in tree.nodes]
        raise UsageError(f"the model has no module `{path}`; {nearest(path, known) or '`probes tree` lists those it has'}")
    probes = {name: probe for name, probe in plan.spec.probes.items() if (probe.model or "") in trees}
    return [(name, _reason(plan, name, probe, trees[probe.model or ""], path)) for name, probe in probes.items()]


def _reason(plan: Plan, name: str, probe: Probe, tree: Tree, path: str) -> str:
    node = tree.nodes[path]
    if not probe.enabled:
        return "no: the probe is switched off (`enabled: false`)"
    found = [binding for binding in plan.bindings if binding.name == name and binding.module == tree.first(node).path]
    if found:
        also = "" if found[0].module == path else f", under its first path `{found[0].module}`"
        return f"yes: {', '.join(dict.fromkeys(binding.value for binding in found))}{also}"
    if probe.tensors:
        return "no: the probe looks at `tensors`, and at none of this module's own"
    return f"no: {'; '.join(_misses(probe, tree, node))}"


def _misses(probe: Probe, tree: Tree, node: Node) -> Iterator[str]:
    """What keeps a module out, the first reason of each pattern that matches, or how near the patterns come."""
    if not node.runs:
        yield f"{node.kind} has no `forward` of its own and never fires"
    if node.scripted:
        yield "it is a ScriptModule, which takes no hooks"
    matching = [text for text in probe.modules if ModuleGlob(text).matches(node.path)]
    if not matching:
        yield from (f"`{text}` does not match: {_parting(text, node.path)}" for text in probe.modules)
        return
    for text in probe.exclude:
        if ModuleGlob(text).matches(node.path):
            yield f"`{matching[0]}` matches, but `exclude: {text}` leaves it out"
    if probe.types and not isinstance_of(node.module, _known(probe)):
        bases = ", ".join(base.__name__ for base in type(node.module).__mro__[:-2])
        yield f"`{matching[0]}` matches, but it is a {bases}, and `types` asks for {', '.join(probe.types)}"


def _known(probe: Probe) -> tuple[str, ...]:
    return tuple(text.rpartition(".")[2] for text in probe.types)


def _parting(text: str, path: str) -> str:
    """Where a pattern and a path part."""
    wanted, levels = levels_of(text), path.split(".") if path else []
    if "**" not in wanted and len(wanted) != len(levels):
        return f"it has {len(wanted)} {'level' if len(wanted) == 1 else 'levels'}, the path {len(levels)}; `**` stands for any number"
    for place, (one, level) in enumerate(zip(wanted, levels, strict=False)):
        if one == "**":
            break
        if not ModuleGlob(one).matches(level):
            return f"level {place + 1} is `{level}`, and it asks for `{one}`"
    return f"nothing below `{'.'.join(wanted[: wanted.index('**')]) or 'the root'}` fits `{'.'.join(wanted[wanted.index('**') + 1 :])}` so"
