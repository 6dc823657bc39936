"""`probes replay`: run a recorded command again and compare the captures."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from probes.commands.diff import report
from probes.commands.options.values import RUN_PATH
from probes.commands.rendering.advance_line import LongCommand
from probes.errors import UsageError
from probes.printable import one_line
from probes.proof.replay import Replay
from probes.proof.replay import replay as run_again
from probes.proof.replay_plan import ReplayPlan

MOST_MODULES = 40


@click.command(cls=LongCommand)
@click.argument("run", type=RUN_PATH)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Directory of the new run; default: RUN-replay.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Working directory for the script; default: the recorded one, or the current one if the script is not there.",
)
@click.option("--anyway", is_flag=True, help="Run even if code, packages or environment have changed.")
@click.option("--yes", is_flag=True, help="Run the command without asking.")
@click.option("--expect", multiple=True, metavar="ROOT", help="Expected captures root of an epoch, used instead of RUN; once per epoch.")
@click.option("--launcher", metavar="COMMAND", help="Start the ranks of a launch with this command, such as 'srun --ntasks 4'.")
@click.option("--bitwise", is_flag=True, help="Compare bit for bit; ignore tolerances of the spec.")
@click.option(
    "--markdown", "markdown_file", type=click.Path(path_type=Path, dir_okay=False), help="Write a Markdown report, for a pull request."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def replay(
    context: click.Context,
    run: Path,
    out: Path | None,
    directory: Path | None,
    anyway: bool,
    yes: bool,
    expect: tuple[str, ...],
    launcher: str | None,
    bitwise: bool,
    markdown_file: Path | None,
    as_json: bool,
) -> None:
    """Run the recorded command of RUN again with the recorded spec, then compare the captures; exit 1 if they differ.

    Verify RUN first, then print the command and ask before it runs. `--yes` runs it without asking.
    """
    named = run if run.name not in ("", "..") else run.resolve()
    place = out or named.with_name(f"{run.resolve().name}-replay")
    agreed = _show if yes else _ask
    try:
        starts = shlex.split(launcher or "")
    except ValueError as error:
        raise UsageError(f"`--launcher` is not a command: {error}") from error
    found = run_again(run, place, directory=directory, anyway=anyway, expect=expect, bitwise=bitwise, launcher=starts, agreed=agreed)
    for change in found.changes:
        click.echo(f"changed since the recording: {change}", err=True)
    if found.difference is not None:
        report(context, found.difference, markdown_file, as_json)
        return
    click.echo(json.dumps(_data(found), indent=2) if as_json else _text(found))
    if not found.same:
        context.exit(1)


def _show(plan: ReplayPlan) -> bool:
    """Print what will run."""
    changed = "as recorded" if plan.script_sha256 == plan.recorded_sha256 else f"CHANGED, recorded {plan.recorded_sha256 or 'nothing'}"
    recorded = plan.anchored_by or "no captures; its manifest and spec fit together"
    data = plan.manifest.data
    lines = [
        f"recorded run  verifies, ledger head {recorded}" if plan.anchored_by else f"recorded run  {recorded}",
        f"command       {shlex.join(plan.words)}",
        f"directory     {plan.directory}",
        f"script        {plan.script}",
        f"  SHA-256     {plan.script_sha256} ({changed})",
        f"plug-ins      {', '.join(plan.plugins) or 'none'}",
        *([f"functions     {', '.join(plan.functions)}"] if plan.functions else []),
        *([f"files         {', '.join(plan.files)}"] if plan.files else []),
        *([f"data          {', '.join(data)} (not checked: a run records digests of data, and no paths)"] if data else []),
        *_modules(plan),
    ]
    click.echo("\n".join(map(one_line, lines)), err=True)
    return True


def _modules(plan: ReplayPlan) -> list[str]:
    """The lines about files that the script imports; changed files come first."""
    if not plan.modules and not plan.in_place:
        return ["modules       none below the directory"]
    rows = sorted(plan.modules, key=lambda one: (one.state == "as recorded", one.name))
    same = sum(one.state == "as recorded" for one in rows)
    lines = [f"modules       {len(rows)} below the directory, {same} as recorded"]
    lines += [f"  {one.name}  {one.sha256[:12]} ({one.state})" for one in rows[:MOST_MODULES]]
    lines += [f"  and {len(rows) - MOST_MODULES} more"] if len(rows) > MOST_MODULES else []
    return [*lines, *([f"  instead of modules of Python: {', '.join(plan.in_place)}"] if plan.in_place else [])]


def _ask(plan: ReplayPlan) -> bool:
    """Print what will run, and ask; without a terminal nothing runs."""
    _show(plan)
    if not sys.stdin.isatty():
        raise UsageError("this runs a recorded script with your permissions; read the lines above, then give --yes")
    return click.confirm("Run this script with your permissions?", err=True)


def _data(found: Replay) -> dict[str, Any]:
    roots = [{"expected": one.root, "found": one.found, "same": one.same} for one in found.expected]
    return {"verdict": "same" if found.same else "different", "out": str(found.out), "roots": roots}


def _text(found: Replay) -> str:
    lines = [
        f"{'same' if one.same else 'DIFFERS'}  expected {one.root or 'nothing'}, found {one.found or 'nothing'}" for one in found.expected
    ]
    return "\n".join([*lines, f"{found.out} captured {'the same values' if found.same else 'different values'}"])
