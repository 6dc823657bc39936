"""`probes plan`: show what a spec would capture on a model."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from probes.commands.options.watching import HELP, OPTION, Watching, models, watch
from probes.commands.rendering.table import table
from probes.errors import PlanError, ProblemsError, UsageError
from probes.printable import counted
from probes.provenance.own_code import with_functions
from probes.signature import size
from probes.spec import LoadedSpec, load_spec
from probes.value_path import PARAMETER_ROOTS

if TYPE_CHECKING:
    from probes.plan.binding import Binding, Plan
    from probes.plan.fold import Fold
    from probes.plan.prediction import Predicted, Values
    from probes.plan.reachable import ReachableTensor
    from probes.script.coverage import Coverage

HEADER = ("probe", "hook", "target", "value", "class", "stored", "bytes", "notes")
UNKNOWN = "unknown before the first step; `--watch SCRIPT` measures one pass"
BEFORE = ("input", "grad_input", "grad_input_total")


@click.command(cls=Watching)
@click.option("--model", "name", metavar="PKG:CALLABLE", help="Callable that builds the model; also FILE.py:CALLABLE.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--allow-code", "code", multiple=True, metavar="FILE", help="Allow transforms of kind `python` to run this file; repeatable.")
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Allow this plug-in to be imported; repeatable.")
@click.option("--why", "path", metavar="MODULE", help="For each probe, explain why it selects this module or why not.")
@click.option("--all", "unfolded", is_flag=True, help="List targets that differ only in numbers one by one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, also for problems; targets are never folded.")
@click.option(OPTION, "watched", is_flag=True, help=HELP)
@click.argument("spec")
@click.pass_context
def plan(
    context: click.Context,
    name: str | None,
    overrides: tuple[str, ...],
    code: tuple[str, ...],
    allowed: tuple[str, ...],
    path: str | None,
    unfolded: bool,
    as_json: bool,
    watched: bool,
    spec: str,
) -> None:
    """Resolve SPEC against a model and show every binding, which is one probe on one target.

    --model builds the model but does not call it, so only the shapes of parameters and of some transforms are known. --watch SCRIPT
    [ARGS]... takes the model that the script calls, and one pass gives every shape.
    """
    with _problems_as_json(context) if as_json else nullcontext():
        # before torch is imported, so that a spec with errors is reported at once
        loaded = with_functions(load_spec(spec, overrides=overrides, allow_plugins=allowed), code)
        if bool(name) == watched:
            raise UsageError("name a model: `--model PKG:CALLABLE`, or `--watch SCRIPT [ARGS]...` at the end of the line")
        _show(context, loaded, name, path, unfolded, as_json)


@contextmanager
def _problems_as_json(context: click.Context) -> Iterator[None]:
    """Print the problems of the spec, also with the model, as JSON."""
    try:
        yield
    except ProblemsError as error:
        click.echo(json.dumps({"problems": [problem.as_dict() for problem in error.problems]}, indent=2))
        context.exit(error.exit_code)


def _show(context: click.Context, loaded: LoadedSpec, name: str | None, path: str | None, unfolded: bool, as_json: bool) -> None:
    """Resolve a spec and print its plan; without the name of a model, a script is watched."""
    from probes.plan import resolve
    from probes.plan.checks import buffer_problem
    from probes.plan.prediction import misfits, predict
    from probes.plan.reasons import reasons
    from probes.script.named_model import named_model

    seen = watch(context, "plan", loaded) if not name else None
    resolved = resolve(loaded, models(seen) if seen is not None else named_model(str(name)))
    if path is not None:
        found = reasons(resolved, path)
        click.echo(json.dumps(dict(found), indent=2) if as_json else "\n".join(f"{probe}: {reason}" for probe, reason in found))
        return
    predicted = predict(resolved, None if seen is None else values(seen))
    problem = buffer_problem(loaded, _waiting(resolved, predicted))
    if problem is not None:
        raise PlanError([problem])
    click.echo(json.dumps(plain(resolved, predicted), indent=2) if as_json else text(resolved, predicted, folded=not unfolded))
    problems = misfits(predicted)
    if problems:
        for line in () if as_json else problems:
            click.echo(f"error: {line}", err=True)
        context.exit(PlanError.exit_code)


def values(seen: Coverage) -> Values:
    """Return a function that gives signatures and calls of a module, as measured."""

    def of(model: str, path: str) -> tuple[Mapping[str, ReachableTensor], int]:
        tree = seen.trees[model]
        return seen.reached(tree, tree.nodes[path]), seen.of(tree, tree.nodes[path]).most

    return of


def plain(plan: Plan, predicted: Sequence[Predicted]) -> dict[str, Any]:
    """Return the plan as plain data."""
    shared = _shared(plan)
    bindings = [{**binding.as_dict(), "shares_hook_with": shared[binding.index]} for binding in plan.bindings]
    seen = [one for one in predicted if one.calls is not None]
    leaves = [
        {
            "probe": one.binding.name,
            "target": one.binding.target,
            "leaf": one.leaf,
            "stored": str(one.stored),
            "bytes": one.nbytes,
            "calls": one.calls,
            **({"problem": one.problem} if one.problem else {}),
        }
        for one in seen
    ]
    known = {"leaves": leaves} if leaves else {}
    return {**plan.as_dict(), "bindings": bindings, **known, "captures_per_step": _captures(predicted)}


def text(plan: Plan, predicted: Sequence[Predicted], *, folded: bool) -> str:
    """Return the plan as text: bindings, modules left out, and the cost of a step."""
    from probes.plan.fold import Fold, fold

    shared = _shared(plan)
    rows = [_row(one, shared[one.binding.index]) for one in predicted]
    several = [f"model {name}: {tree.root.kind}, {counted(len(tree.nodes), 'module')}" for name, tree in plan.trees.items() if name]
    folds = fold([(row[2], (*row[:2], *row[3:])) for row in rows]) if folded else [Fold(row[2], (at,)) for at, row in enumerate(rows)]
    cells = [_folded(rows[one.members[0]], one) for one in folds]
    lines = [*several, table(HEADER, cells, right=("bytes",), kept=("notes",), named="target"), ""]
    lines += [
        f"{name}: left out because they are never called: {', '.join(f'`{path}`' for path in paths)}"
        for name, paths in plan.dropped.items()
    ]
    lines += [f"note[{note.code}]: {note.message}" for note in plan.notes]
    return "\n".join([*lines, _prediction(plan, predicted), *_ring(plan, predicted), *_copies(plan)])


def _folded(row: tuple[str, ...], one: Fold) -> tuple[str, ...]:
    count = len(one.members)
    if count == 1:
        return row
    probe, hook, _, value, kind, stored, nbytes, notes = row
    return (probe, hook, one.label, value, f"{count} x {kind}", stored, nbytes if nbytes == "?" else f"{count} x {nbytes}", notes)


def _row(one: Predicted, shared: list[str]) -> tuple[str, ...]:
    binding = one.binding
    target = f"{binding.model}/{binding.target}" if binding.model else binding.target
    stored = str(one.stored) if one.stored.dtype or one.stored.shape is not None or one.stored.dims else "?"
    nbytes = "?" if one.nbytes is None else size(one.nbytes)
    hook = f"{binding.hook}, {binding.stage}" if binding.stage else binding.hook
    notes = [one.problem] if one.problem else [f"{one.calls} calls"] if (one.calls or 1) > 1 else []
    return (binding.name, hook, target or '""', one.leaf, binding.kind, stored, nbytes, "; ".join([*notes, *_notes(binding, shared)]))


def _notes(binding: Binding, shared: list[str]) -> list[str]:
    notes = [] if binding.neutral else ["not neutral"]
    if binding.aliases:
        notes.append("also " + ", ".join(f"`{alias}`" for alias in binding.aliases))
    if binding.raw != binding.module:
        notes.append(f"path in the model: `{binding.raw}`")
    if binding.second is not None:
        notes.append(f"against {binding.second}")
    if shared:
        notes.append("shares its hook with " + ", ".join(f"`{name}`" for name in shared))
    return notes


def _shared(plan: Plan) -> dict[int, list[str]]:
    """Return, for each binding, the other probes that share its hook."""
    groups: dict[tuple[object, ...], list[Binding]] = defaultdict(list)
    for binding in plan.bindings:
        moment = "ops" if binding.op else "tensor" if binding.root in PARAMETER_ROOTS else "before" if binding.root in BEFORE else "after"
        place = binding.target if moment == "tensor" else binding.module
        groups[binding.model, place, moment, binding.stage].append(binding)
    found: dict[int, list[str]] = {}
    for group in groups.values():
        for binding in group:
            others = (other.name for other in group if other.name != binding.name and other.root not in PARAMETER_ROOTS)
            found[binding.index] = list(dict.fromkeys(others))
    return found


def _waiting(plan: Plan, predicted: Sequence[Predicted]) -> dict[str, int]:
    """Return the known bytes of one step of every probe with a trigger."""
    found: dict[str, int] = {}
    for one in predicted:
        if one.binding.probe.when.trigger is not None:
            found[one.binding.name] = found.get(one.binding.name, 0) + (one.nbytes or 0)
    return found


def _ring(plan: Plan, predicted: Sequence[Predicted]) -> list[str]:
    """Return a line on the memory that probes with a trigger use."""
    from probes.plan.checks import held_bytes

    held = held_bytes(plan.loaded, _waiting(plan, predicted))
    room = plan.spec.limits.buffer_bytes
    bound = "" if room is None else f" of {size(room)} (`limits.buffer_bytes`)"
    return [f"nothing is written before a trigger fires; until then {size(sum(held.values()))}{bound} are kept in memory"] if held else []


def _copies(plan: Plan) -> list[str]:
    """Return lines on the copies of values that comparisons and conditions keep in memory."""
    seconds = [binding.second for binding in plan.bindings if binding.second is not None]
    steps, series = sum(bool(one.step) for one in seconds), sum(one.series is not None for one in seconds)
    lines = [f"{counted(steps, 'value')} compared with another step: a copy of each is kept in memory"] if steps else []
    lines += [f"{counted(series, 'value')} compared with another series: copies are kept in memory until the step ends"] if series else []
    held = sum(binding.probe.where is not None and binding.probe.where.is_elsewhere for binding in plan.bindings)
    return [
        *lines,
        *([f"{counted(held, 'value')} kept in memory until a number elsewhere decides, at most until the step ends"] if held else []),
    ]


def _captures(predicted: Sequence[Predicted]) -> int:
    """Return the number of captures per call of the model."""
    return sum(1 if one.calls is None else one.calls for one in predicted)


def _prediction(plan: Plan, predicted: Sequence[Predicted]) -> str:
    probes = len({binding.name for binding in plan.bindings})
    called = [one for one in predicted if one.calls != 0]
    known = [one.nbytes for one in called if one.nbytes is not None]
    if len(known) == len(called):
        cost = f"{size(sum(known))} in a step where all probes are due"
    elif known:
        cost = f"{size(sum(known))} for {len(known)} of them in a step where all probes are due, the rest {UNKNOWN}"
    else:
        cost = f"bytes {UNKNOWN}"
    return f"{counted(probes, 'probe')}, {counted(_captures(predicted), 'capture')} per call of the model; {cost}"
