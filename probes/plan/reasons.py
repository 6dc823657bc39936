"""The reason why a probe captures values of a module or does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from probes.errors import UsageError, nearest
from probes.module_glob import ModuleGlob, levels_of
from probes.plan.binding import Plan
from probes.plan.match_modules import isinstance_of
from probes.plan.tree import Node, Tree
from probes.spec import Probe


def reasons(plan: Plan, path: str) -> list[tuple[str, str]]:
    """Each probe of a plan, and why it captures values of a module or does not.

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
        return "no: the probe is disabled (`enabled: false`)"
    found = [binding for binding in plan.bindings if binding.name == name and binding.module in (path, *tree.aliases(node))]
    if found:
        also = "" if found[0].module == path else f", under its path `{found[0].module}`"
        return f"yes: {', '.join(dict.fromkeys(binding.value for binding in found))}{also}"
    if probe.tensors:
        return "no: the probe has `tensors`, and none of them belongs to this module"
    if not probe.modules:
        return "no: its values are those of the training loop, which belong to no module"
    return f"no: {'; '.join(_misses(probe, tree, node))}"


def _misses(probe: Probe, tree: Tree, node: Node) -> Iterator[str]:
    """The reason that excludes a module, for each pattern that matches, or the first mismatch of each pattern."""
    if not node.runs:
        yield f"`{node.kind}` has no `forward` and is never called"
    if node.scripted:
        yield "it is a ScriptModule, on which hooks do not work"
    matching = [text for text in probe.modules if node in tree.matching(ModuleGlob(text))]
    if not matching:
        yield from (f"{f'`{text}`' if text else 'the root'} does not match: {_first_difference(text, node.path)}" for text in probe.modules)
        return
    for text in probe.exclude:
        if node in tree.matching(ModuleGlob(text)):
            yield f"`{matching[0]}` matches, but `exclude: {text}` removes it"
    if probe.types and not isinstance_of(node.module, _known(probe)):
        bases, wanted = (base.__name__ for base in type(node.module).__mro__[:-2]), probe.types
        yield f"`{matching[0]}` matches, but its classes are {_listed(bases)}, and `types` selects {_listed(wanted)}"


def _known(probe: Probe) -> tuple[str, ...]:
    return tuple(text.rpartition(".")[2] for text in probe.types)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _first_difference(text: str, path: str) -> str:
    """The first difference between a glob and a path."""
    wanted, levels = levels_of(text), path.split(".") if path else []
    if "**" not in wanted and len(wanted) != len(levels):
        count = f"{len(wanted)} {'level' if len(wanted) == 1 else 'levels'}"
        return f"it has {count}, the path has {len(levels)}; `**` matches any number of levels"
    for place, (one, level) in enumerate(zip(wanted, levels, strict=False)):
        if one == "**":
            break
        if not ModuleGlob(one).matches(level):
            return f"level {place + 1} of the path is `{level}`, the glob has `{one}` there"
    above, below = ".".join(wanted[: wanted.index("**")]), ".".join(wanted[wanted.index("**") + 1 :])
    return f"`{below}` does not match below {f'`{above}`' if above else 'the root'}"
