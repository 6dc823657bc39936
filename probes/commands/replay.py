"""`probes replay`: run a recorded command again and compare the captures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from probes.commands.diff import report
from probes.proof.replay import Replay
from probes.proof.replay import replay as run_again


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Directory of the new run; default: RUN-replay.")
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Working directory for the script.")
@click.option("--anyway", is_flag=True, help="Run even if code, packages or environment have changed.")
@click.option("--expect", multiple=True, metavar="ROOT", help="Expected captures root of an epoch, used instead of RUN; once per epoch.")
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
    expect: tuple[str, ...],
    bitwise: bool,
    markdown_file: Path | None,
    as_json: bool,
) -> None:
    """Run the recorded command of RUN again with the recorded spec, then compare the captures; exit 1 if they differ."""
    place = out or run.with_name(f"{run.resolve().name}-replay")
    found = run_again(run, place, directory=directory, anyway=anyway, expect=expect, bitwise=bitwise)
    for change in found.changes:
        click.echo(f"changed since the recording: {change}", err=True)
    if found.difference is not None:
        report(context, found.difference, markdown_file, as_json)
        return
    click.echo(json.dumps(_data(found), indent=2) if as_json else _text(found))
    if not found.same:
        context.exit(1)


def _data(found: Replay) -> dict[str, Any]:
    roots = [{"expected": one.root, "found": one.found, "same": one.same} for one in found.expected]
    return {"verdict": "same" if found.same else "different", "out": str(found.out), "roots": roots}


def _text(found: Replay) -> str:
    lines = [
        f"{'same' if one.same else 'DIFFERS'}  expected {one.root or 'nothing'}, found {one.found or 'nothing'}" for one in found.expected
    ]
    return "\n".join([*lines, f"{found.out} captured {'the same values' if found.same else 'different values'}"])
