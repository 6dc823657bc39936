"""`probes plan`: what a spec comes to on a model, before anything runs."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from probes.commands.table import size, table
from probes.errors import PlanError
from probes.spec import load_spec

if TYPE_CHECKING:
    from probes.plan.binding import Binding, Plan

UNKNOWN = "unknown until the first step"
BEFORE = ("input", "grad_input", "grad_input_total")


@click.command()
@click.option("--model", "name", required=True, metavar="PKG:CALLABLE", help="Where the model comes from; FILE.py:CALLABLE too.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Let this plug-in be imported; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, problems too.")
@click.argument("spec")
@click.pass_context
def plan(context: click.Context, name: str, overrides: tuple[str, ...], allowed: tuple[str, ...], as_json: bool, spec: str) -> None:
    """Resolve SPEC against a model and show every binding; the model is built, but not called."""
    # before torch is imported: a spec that is wrong by itself is told at once
    loaded = load_spec(spec, overrides=overrides, allow_plugins=allowed)

    from probes.plan import resolve
    from probes.script.named_model import named_model

    model = named_model(name)
    try:
        resolved = resolve(loaded, model)
    except PlanError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"problems": [problem.as_dict() for problem in error.problems]}, indent=2))
        context.exit(error.exit_code)
    click.echo(json.dumps(plain(resolved), indent=2) if as_json else text(resolved))


def plain(plan: Plan) -> dict[str, Any]:
    """A plan as data."""
    shared = _shared(plan)
    found = plan.as_dict()
    bindings = [{**binding.as_dict(), "shares_hook_with": shared[binding.index]} for binding in plan.bindings]
    return {**found, "bindings": bindings, "captures_per_step": len(plan.bindings)}


def text(plan: Plan) -> str:
    """A plan for a terminal: the bindings, what was left out, and what a step costs."""
    shared = _shared(plan)
    header = ("probe", "hook", "target", "value", "class", "stored", "bytes", "notes")
    rows = [_row(binding, shared[binding.index]) for binding in plan.bindings]
    several = [f"model {name}: {tree.root.kind}, {len(tree.nodes)} modules" for name, tree in plan.trees.items() if name]
    lines = [*several, table(header, rows, right=("bytes",)), ""]
    lines += [f"{name}: left out, never fires: {', '.join(f'`{path}`' for path in paths)}" for name, paths in plan.dropped.items()]
    lines += [f"note[{note.code}]: {note.message}" for note in plan.notes]
    return "\n".join([*lines, _prediction(plan)])


def _row(binding: Binding, shared: list[str]) -> tuple[str, ...]:
    target = f"{binding.model}/{binding.target}" if binding.model else binding.target
    stored = str(binding.stored) if binding.stored.dtype or binding.stored.shape is not None or binding.stored.dims else "?"
    nbytes = "?" if binding.stored.nbytes is None else size(binding.stored.nbytes)
    hook = f"{binding.hook}, {binding.stage}" if binding.stage else binding.hook
    return (binding.name, hook, target or '""', binding.value, binding.kind, stored, nbytes, "; ".join(_notes(binding, shared)))


def _notes(binding: Binding, shared: list[str]) -> list[str]:
    notes = [] if binding.neutral else ["not neutral"]
    if binding.aliases:
        notes.append("also " + ", ".join(f"`{alias}`" for alias in binding.aliases))
    if binding.raw != binding.module:
        notes.append(f"in the model: `{binding.raw}`")
    if shared:
        notes.append("one hook with " + ", ".join(f"`{name}`" for name in shared))
    return notes


def _shared(plan: Plan) -> dict[int, list[str]]:
    """The other probes that one hook serves together with a binding."""
    groups: dict[tuple[object, ...], list[Binding]] = defaultdict(list)
    for binding in plan.bindings:
        moment = "tensor" if binding.root in ("grad", "data") else "before" if binding.root in BEFORE else "after"
        place = binding.target if moment == "tensor" else binding.module
        groups[binding.model, place, moment, binding.stage].append(binding)
    found: dict[int, list[str]] = {}
    for group in groups.values():
        for binding in group:
            others = (other.name for other in group if other.name != binding.name and other.root not in ("grad", "data"))
            found[binding.index] = list(dict.fromkeys(others))
    return found


def _prediction(plan: Plan) -> str:
    probes = len({binding.name for binding in plan.bindings})
    known = [binding.stored.nbytes for binding in plan.bindings if binding.stored.nbytes is not None]
    if plan.bytes_per_step is not None:
        cost = f"{size(plan.bytes_per_step)} in a step where all are due"
    elif known:
        cost = f"{size(sum(known))} for {len(known)} of them in a step where all are due, the rest {UNKNOWN}"
    else:
        cost = f"bytes {UNKNOWN}"
    return f"{probes} probes, {len(plan.bindings)} captures for each call of the model; {cost}"
