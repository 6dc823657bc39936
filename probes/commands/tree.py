"""`probes tree`: show the modules of a model with the paths that specs use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from probes.commands.options.watching import HELP, OPTION, Watching, watch
from probes.commands.rendering.table import table
from probes.errors import UsageError
from probes.printable import counted
from probes.spec import LoadedSpec, load_spec

if TYPE_CHECKING:
    from probes.plan.tree import Tree
    from probes.plan.tree_outline import OutlineRow
    from probes.script.coverage import Coverage

Matched = dict[tuple[str, str], dict[str, None]]  # (model, module path) -> names of the probes on it
MOST = 3  # limit of leaves of a value that are shown


@dataclass(frozen=True)
class Shown:
    """The facts to show for each module.

    Attributes:
        matched: the probes on each module.
        seen: counts and shapes from one pass, if a script was watched.
        folded: whether repeated blocks share a row.
        probes: whether there is a spec.
    """

    matched: Matched
    seen: Coverage | None
    folded: bool
    probes: bool


@click.command(cls=Watching)
@click.option("--model", "name", metavar="PKG:CALLABLE", help="Callable that builds the model; also FILE.py:CALLABLE.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--all", "unfolded", is_flag=True, help="List repeated blocks one by one.")
@click.option(
    "--ops", "ops", is_flag=True, help="List the torch functions that each module calls itself, for `ops` of a spec; needs --watch."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; blocks are never folded.")
@click.option(OPTION, "watched", is_flag=True, help=HELP)
@click.argument("spec", required=False)
@click.pass_context
def tree(
    context: click.Context,
    name: str | None,
    overrides: tuple[str, ...],
    unfolded: bool,
    ops: bool,
    as_json: bool,
    watched: bool,
    spec: str | None,
) -> None:
    """Show the modules of a model, and the probes of SPEC on them.

    --model builds the model but does not call it. --watch SCRIPT [ARGS]... takes the model that the script calls, and also shows
    what each module returned in one pass.
    """
    if bool(name) == watched:
        raise UsageError("name a model: `--model PKG:CALLABLE`, or `--watch SCRIPT [ARGS]...` at the end of the line")
    if ops and not watched:
        raise UsageError("--ops needs a call of the model: use `--watch SCRIPT [ARGS]...` instead of --model")
    loaded = load_spec(spec, overrides=overrides) if spec else None
    seen = watch(context, "tree", loaded, ops=ops) if watched else None
    trees = seen.trees if seen is not None else _trees(str(name))
    matched = _matched(loaded, trees) if loaded is not None else {}
    if as_json:
        click.echo(json.dumps({key: _plain(key, one, matched, seen) for key, one in trees.items()}, indent=2))
        return
    shown = Shown(matched, seen, folded=not unfolded, probes=loaded is not None)
    click.echo("\n\n".join(_text(key, one, shown) for key, one in trees.items()))


def _trees(name: str) -> dict[str, Tree]:
    from probes.plan.tree import Tree
    from probes.script.named_model import named_model

    model = named_model(name)
    return {key: Tree(one) for key, one in (model.items() if isinstance(model, Mapping) else [("", model)])}


def _matched(loaded: LoadedSpec, trees: dict[str, Tree]) -> Matched:
    from probes.plan import resolve

    found: Matched = {}
    named = {name: tree.model for name, tree in trees.items()}
    for binding in resolve(loaded, named.get("", named)).bindings:
        found.setdefault((binding.model, binding.module), {})[binding.name] = None
    return found


def _plain(model: str, tree: Tree, matched: Matched, seen: Coverage | None) -> list[dict[str, Any]]:
    from probes.plan.tree_outline import outline

    return [
        {
            "path": row.path,
            "class": row.kind,
            "parameters": row.parameters,
            "runs": row.nodes[0].runs,
            "aliases": list(tree.aliases(row.nodes[0])),
            "wrappers": [type(wrapper).__name__ for wrapper in row.nodes[0].wrappers],
            "probes": list(matched.get((model, row.path), ())),
            **({"operations": _operations(tree, row, seen)} if seen is not None and seen.ops else {}),
            **({"values": {leaf: str(sig) for leaf, sig in seen.values(tree, row.nodes[0]).items()}} if seen is not None else {}),
        }
        for row in outline(tree, folded=False)
    ]


def _text(model: str, tree: Tree, shown: Shown) -> str:
    from probes.plan.tree_outline import outline

    rows = outline(tree, folded=shown.folded)
    cells = [
        (
            row.path or '""',
            _kind(row),
            _amount(row),
            _returned(tree, row, shown),
            _probes(model, row, shown.matched),
            _notes(tree, row, shown),
        )
        for row in rows
    ]
    kept = [column for column in range(6) if column < 3 or any(line[column] for line in cells)]
    header = ("module", "class", "parameters", "returns", "probes", "notes")
    text = table([header[column] for column in kept], [[line[column] for column in kept] for line in cells], right=("parameters",))
    probed = f", {len({path for name, path in shown.matched if name == model})} probed" if shown.probes else ""
    listed = [line for row in rows for line in _listed(tree, row, shown)]
    return "\n".join([*([f"model {model}"] if model else []), text, "", *listed, f"{counted(len(tree.nodes), 'module')}{probed}"])


def _operations(tree: Tree, row: OutlineRow, seen: Coverage) -> list[dict[str, Any]]:
    """Return the operations of a module as plain data."""
    found = seen.operations(tree, row.nodes[0])
    return [
        {"op": one.name, "function": one.function, "outputs": {leaf: str(signature) for leaf, signature in one.outputs.items()}}
        for one in found
    ]


def _listed(tree: Tree, row: OutlineRow, shown: Shown) -> list[str]:
    """Return lines on the operations of a module; of a folded row, of the first module."""
    found = shown.seen.operations(tree, row.nodes[0]) if shown.seen is not None else []
    if not found:
        return []
    return [f"operations of {row.path or 'the model'} ({row.kind}):", *(f"  {one.text}" for one in found), ""]


def _returned(tree: Tree, row: OutlineRow, shown: Shown) -> str:
    """Return what a module returned; of a folded row, the first module."""
    if shown.seen is None:
        return ""
    found = {leaf: sig for leaf, sig in shown.seen.values(tree, row.nodes[0]).items() if leaf.partition(".")[0] == "output"}
    texts = [f"{leaf.removeprefix('output').removeprefix('.')} {sig}".strip() for leaf, sig in found.items()]
    return ", ".join(texts[:MOST]) + (f" and {len(texts) - MOST} more" if len(texts) > MOST else "")


def _kind(row: OutlineRow) -> str:
    return row.kind if len(row.nodes) == 1 else f"{len(row.nodes)} x {row.kind}"


def _amount(row: OutlineRow) -> str:
    return "unknown" if row.parameters is None else f"{row.parameters:,}" if row.parameters else ""


def _probes(model: str, row: OutlineRow, matched: Matched) -> str:
    counts = Counter(name for node in row.nodes for name in matched.get((model, node.path), ()))
    total = len(row.nodes)
    return ", ".join(name if count == total else f"{name} ({count} of {total})" for name, count in counts.items())


def _notes(tree: Tree, row: OutlineRow, shown: Shown) -> str:
    node = row.nodes[0]
    notes = [f"same module as `{row.shared}`"] if row.shared else []
    if not node.runs:
        notes.append("never called: has no forward")
    if node.scripted:
        notes.append("ScriptModule: cannot take hooks")
    silent = sum(1 for one in row.nodes if shown.seen is not None and one.runs and not shown.seen.of(tree, one).calls)
    if silent:
        notes.append("was not called" if silent == len(row.nodes) else f"{silent} of {len(row.nodes)} not called")
    notes += [f"inside {type(wrapper).__name__}" for wrapper in node.wrappers]
    return "; ".join(notes)
