"""`probes recover`: seal the journals that a killed run left."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from probes.commands.options.values import RUN_PATH
from probes.commands.rendering.advance_line import LongCommand
from probes.printable import counted, one_line
from probes.run_directory.launch.absent import by_ranks, without
from probes.run_directory.recover import Recovery, RecoveryFinding, recover_all


@click.command(cls=LongCommand)
@click.argument("run", type=RUN_PATH)
@click.option("--take-over", is_flag=True, help="Recover even if it is unknown whether the process that owns RUN still runs.")
@click.option(
    "--unproven",
    type=click.Choice(["keep", "include", "exclude"]),
    default="keep",
    help="Steps from another machine without proof that they are complete: keep their journal (default), include or exclude them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def recover(context: click.Context, run: Path, take_over: bool, unproven: str, as_json: bool) -> None:
    """Seal the journals that a killed process left in RUN, and in RUN.candidate-2 and so on; exit 1 if a file is damaged.

    If RUN is a directory of runs, recover all runs below it.
    """
    found = recover_all(run, take_over=take_over, unproven=unproven)
    first, *beside = found
    if first.directory == run:
        about: dict[str, object] = {**_data(first), "beside": [_data(one) for one in beside]}
        text = "\n".join([_text(first), *map(_beside, beside)])
    else:
        about, text = {"runs": [_data(one) for one in found]}, "\n".join(map(_named, found))
    click.echo(json.dumps(about, indent=2) if as_json else text)
    if any(one.damaged for one in found):
        context.exit(1)


def _data(recovery: Recovery) -> dict[str, object]:
    return {
        "run": str(recovery.directory),
        "damaged": recovery.damaged,
        "findings": [asdict(finding) for finding in recovery.findings],
        "heads": recovery.heads,
        "head": recovery.head,
        "absent": [{"epoch": epoch, "ranks": list(ranks)} for epoch, ranks in recovery.absent.items()],
    }


def _text(recovery: Recovery) -> str:
    lines = [_line(finding) for finding in recovery.findings] or ["nothing to recover"]
    lines += [without(ranks, epochs) for ranks, epochs in by_ranks(recovery.absent).items()]
    lines += [f"{name}: head {head}" for name, head in recovery.heads.items()]
    lines += [f"head of the run {recovery.head}"] if len(recovery.heads) > 1 and recovery.head else []
    return "\n".join(map(one_line, lines))


def _beside(recovery: Recovery) -> str:
    return f'"{recovery.directory}", another model of the same script:\n{_text(recovery)}'


def _named(recovery: Recovery) -> str:
    return one_line(f'"{recovery.directory}":') + f"\n{_text(recovery)}"


def _line(finding: RecoveryFinding) -> str:
    about = finding.message
    if finding.action in ("sealed", "finished"):
        state = "complete" if finding.complete else f"incomplete: {finding.message}"
        about = f"{counted(finding.captures, 'capture')}, {state}"
    return f"{finding.action:<9} {finding.file}  {about}".rstrip()
