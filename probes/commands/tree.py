"""`probes tree`: the modules of a model, as a spec addresses them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from probes.commands.table import table

if TYPE_CHECKING:
    from probes.plan.binding import Plan
    from probes.plan.outline import Row
    from probes.plan.tree import Node, Tree

Matched = dict[tuple[str, str], dict[str, None]]  # (model, module path) -> names of the probes on it


@click.command()
@click.option("--model", "name", required=True, metavar="PKG:CALLABLE", help="Where the model comes from; FILE.py:CALLABLE too.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--all", "unfolded", is_flag=True, help="Do not fold blocks that repeat.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; never folded.")
@click.argument("spec", required=False)
def tree(name: str, overrides: tuple[str, ...], unfolded: bool, as_json: bool, spec: str | None) -> None:
    """Show the module tree of a model, and which modules the probes of SPEC look at."""
    from probes.plan.tree import Tree
    from probes.script.named_model import named_model

    model = named_model(name)
    models = dict(model) if isinstance(model, Mapping) else {"": model}
    trees = {key: Tree(one) for key, one in models.items()}
    matched = _matched(_plan(spec, overrides, model)) if spec else {}
    if as_json:
        click.echo(json.dumps({key: _plain(key, one, matched) for key, one in trees.items()}, indent=2))
        return
    click.echo("\n\n".join(_text(key, one, matched, not unfolded, spec is not None) for key, one in trees.items()))


def _plan(spec: str, overrides: tuple[str, ...], model: Any) -> Plan:
    from probes.plan import resolve
    from probes.spec import load_spec

    return resolve(load_spec(spec, overrides=overrides), model)


def _matched(plan: Plan) -> Matched:
    found: Matched = {}
    for binding in plan.bindings:
        found.setdefault((binding.model, binding.module), {})[binding.name] = None
    return found


def _plain(model: str, tree: Tree, matched: Matched) -> list[dict[str, Any]]:
    from probes.plan.outline import Outline

    return [
        {
            "path": row.path,
            "class": row.kind,
            "parameters": row.parameters,
            "runs": row.nodes[0].runs,
            "aliases": row.nodes[0].aliases,
            "wrappers": [type(wrapper).__name__ for wrapper in row.nodes[0].wrappers],
            "probes": list(matched.get((model, row.path), ())),
        }
        for row in Outline(tree, folded=False).rows()
    ]


def _text(model: str, tree: Tree, matched: Matched, folded: bool, with_probes: bool) -> str:
    from probes.plan.outline import Outline

    rows = list(Outline(tree, folded=folded).rows())
    cells = [(row.path or '""', _kind(row), _amount(row), _probes(model, row, matched), _notes(row.nodes[0], row)) for row in rows]
    kept = [column for column in range(5) if column < 3 or any(line[column] for line in cells)]
    header = ("module", "class", "parameters", "probes", "notes")
    text = table([header[column] for column in kept], [[line[column] for column in kept] for line in cells], right=("parameters",))
    total = f"{len(tree.nodes)} modules" + (f", {len({path for name, path in matched if name == model})} probed" if with_probes else "")
    return "\n".join([*([f"model {model}"] if model else []), text, "", total])


def _kind(row: Row) -> str:
    return row.kind if len(row.nodes) == 1 else f"{len(row.nodes)} x {row.kind}"


def _amount(row: Row) -> str:
    return "unknown" if row.parameters is None else f"{row.parameters:,}" if row.parameters else ""


def _probes(model: str, row: Row, matched: Matched) -> str:
    counts = Counter(name for node in row.nodes for name in matched.get((model, node.path), ()))
    total = len(row.nodes)
    return ", ".join(name if count == total else f"{name} ({count} of {total})" for name, count in counts.items())


def _notes(node: Node, row: Row) -> str:
    notes = [f"same module as `{row.shared}`"] if row.shared else []
    if not node.runs:
        notes.append("never fires: no forward of its own")
    if node.scripted:
        notes.append("ScriptModule: takes no hooks")
    notes += [f"inside {type(wrapper).__name__}" for wrapper in node.wrappers]
    return "; ".join(notes)
