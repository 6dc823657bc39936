"""`probes coverage`: count the calls of every module in a script."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from probes.commands.options.watching import calls_of
from probes.commands.rendering.table import table
from probes.errors import RunError
from probes.script.program import program_of, show
from probes.spec import LoadedSpec, load_spec

if TYPE_CHECKING:
    from probes.plan.tree import Tree
    from probes.plan.tree_outline import OutlineRow
    from probes.script.coverage import Coverage

Matched = dict[tuple[str, str], list[str]]


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Allow this plug-in to be imported; repeatable.")
@click.option("--all", "unfolded", is_flag=True, help="List repeated blocks one by one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SPEC] SCRIPT|-m MODULE [ARGS]...")
@click.pass_context
def coverage(
    context: click.Context, overrides: tuple[str, ...], allowed: tuple[str, ...], unfolded: bool, as_json: bool, words: tuple[str, ...]
) -> None:
    """Run SCRIPT once and count the calls of every module of its model; with SPEC, of the model that the spec fits.

    The model is the one whose parameters an optimizer steps; without such a step, the only one that is called. Nothing is stored.
    What SCRIPT prints goes to stderr.
    """
    has_spec = bool(words) and (words[0].endswith((".yaml", ".yml")) or words[0].startswith("preset:"))
    loaded = load_spec(words[0], overrides=overrides, allow_plugins=allowed) if has_spec else None
    program = program_of("coverage", words[1:] if has_spec else words, words[0] if has_spec else "[SPEC]")
    ending, found = calls_of(program, loaded)
    if ending.error is not None and (found is None or ending.error is not found.failure):
        ending = show(ending)
    if ending.code and (found is None or not found.trees):
        context.exit(ending.code)
    if found is None:
        raise RunError("the script did not import torch, so no module was called")
    failure = found.verdict()
    if failure is not None:
        raise failure
    matched = _matched(found, loaded)
    click.echo(json.dumps(plain(found, matched), indent=2) if as_json else text(found, matched, folded=not unfolded))
    context.exit(ending.code)


def _matched(found: Coverage, loaded: LoadedSpec | None) -> Matched:
    """Return the probes on each module; empty without a spec."""
    if loaded is None:
        return {}
    from probes.plan import resolve

    models = {name: tree.model for name, tree in found.trees.items()}
    matched: Matched = {}
    for binding in resolve(loaded, models.get("", models)).bindings:
        names = matched.setdefault((binding.model, binding.module), [])
        if binding.name not in names:
            names.append(binding.name)
    return matched


def plain(found: Coverage, matched: Matched) -> dict[str, Any]:
    """Return the counts as plain data, unfolded."""
    modules = [
        {
            "model": name,
            "path": path,
            "class": node.kind,
            "runs": node.runs,
            "probes": matched.get((name, path), []),
            **vars(found.of(tree, node)),
        }
        for name, tree in found.trees.items()
        for path, node in tree.nodes.items()
    ]
    models = {name: {"outermost_calls": counts.outermost, "first_call": counts.place} for name, counts in found.models.items()}
    called = found.finder.census.as_dicts()
    return {"outermost_calls": found.outermost, "first_call": found.place, "models": models, "called": called, "modules": modules}


def text(found: Coverage, matched: Matched, *, folded: bool) -> str:
    """Return the counts as text for a terminal."""
    trees = [_tree_text(found, name, tree, matched, folded) for name, tree in found.trees.items()]
    called = found.finder.census.lines("counted") if len(found.finder.census.models) > len(trees) else []
    return "\n\n".join([*trees, *(["\n".join(called)] if called else [])])


def _tree_text(found: Coverage, name: str, tree: Tree, matched: Matched, folded: bool) -> str:
    from probes.plan.tree_outline import outline

    rows = outline(tree, folded=folded)
    header = ("module", "class", "calls", "per call", "probes", "note")
    cells = [_cells(found, name, tree, row, matched) for row in rows]
    kept = [column for column in range(6) if column < 4 or any(line[column] for line in cells)]
    grid = table([header[column] for column in kept], [[line[column] for column in kept] for line in cells], right=("calls", "per call"))
    runnable = list(tree.runnable())
    fired = sum(1 for node in runnable if found.of(tree, node).calls)
    counts = found.calls(name)
    calls = f"{counts.outermost} outermost calls, {fired} of {len(runnable)} modules called"
    head = f"{tree.root.kind}, first called at {counts.place}: {calls}"
    return "\n".join([f"model {name}: {head}" if name else head, "", grid])


def _cells(found: Coverage, name: str, tree: Tree, row: OutlineRow, matched: Matched) -> tuple[str, ...]:
    counts = [found.of(tree, node) for node in row.nodes]
    calls, most = _span([one.calls for one in counts]), _span([one.most for one in counts])
    if any(0 < one.within < found.calls(name).outermost for one in counts):
        most = f"0-{max(one.most for one in counts)}"
    probes = list(dict.fromkeys(probe for node in row.nodes for probe in matched.get((name, node.path), ())))
    kind = row.kind if len(row.nodes) == 1 else f"{len(row.nodes)} x {row.kind}"
    return (row.path or '""', kind, calls, most, ", ".join(probes), _note(row, [one.calls for one in counts]))


def _note(row: OutlineRow, calls: list[int]) -> str:
    if row.shared:
        return f"same module as `{row.shared}`"
    if not row.nodes[0].runs:
        return "has no forward"
    silent = sum(1 for count in calls if not count)
    return "" if not silent else "never called" if silent == len(calls) else f"{silent} of {len(calls)} never called"


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if min(numbers) == max(numbers) else f"{min(numbers)}-{max(numbers)}"
