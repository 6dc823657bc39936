"""`probes diff`: compare two runs and find the first difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from probes.commands.options.values import RUN_PATH, numbers
from probes.commands.rendering.advance_line import LongCommand
from probes.plain_file import write_page
from probes.proof.comparison.difference import Difference
from probes.proof.diff import diff as compare
from probes.report.difference_text import markdown, text


@click.command(cls=LongCommand)
@click.argument("a", type=RUN_PATH)
@click.argument("b", type=RUN_PATH)
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance (relative to A); replaces those of the spec.")
@click.option("--atol", type=click.FloatRange(min=0), help="Absolute tolerance; replaces those of the spec.")
@click.option("--bitwise", is_flag=True, help="Compare bit for bit; ignore tolerances of the spec.")
@click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="OLD=NEW",
    help="Map a module path (or path:leaf) of A to its name in B, or one module to several: 'qkv=q+k+v[groups=12]'; @FILE reads lines; "
    "repeatable.",
)
@click.option("--rank", multiple=True, callback=numbers, help="Compare these ranks: 3 or 0,5 or 10:20.")
@click.option("--concat", type=click.Choice(["batch"]), help="Join the batches of all ranks, by sample ids if the runs have them.")
@click.option(
    "--read-all/--by-digest",
    default=True,
    help="Read every value (default), or trust the digests that the files state and read only values whose digests differ.",
)
@click.option(
    "--markdown", "markdown_file", type=click.Path(path_type=Path, dir_okay=False), help="Write a Markdown report, for a pull request."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def diff(
    context: click.Context,
    a: Path,
    b: Path,
    rtol: float | None,
    atol: float | None,
    bitwise: bool,
    mapping: tuple[str, ...],
    rank: Any,
    concat: str | None,
    read_all: bool,
    markdown_file: Path | None,
    as_json: bool,
) -> None:
    """Compare the captures of two runs or files, matched by series and clock; exit 1 if they differ.

    If the runs have different numbers of ranks, the ranks of each run are merged: shards are joined, replicas compared, gradients of one
    rank's batch averaged, and with `--concat batch` the values of a batch are joined.
    """
    found = compare(a, b, rtol=rtol, atol=atol, mapping=mapping, bitwise=bitwise, by_digest=not read_all, concat=concat or "", rank=rank)
    report(context, found, markdown_file, as_json)


def report(context: click.Context, found: Difference, markdown_file: Path | None, as_json: bool) -> None:
    """Print a difference, write the requested report, and exit with 1 if the runs differ."""
    if markdown_file is not None:
        write_page(markdown_file, markdown(found))
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else text(found))
    if not found.same:
        context.exit(1)
