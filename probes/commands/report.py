"""`probes report`: write a page that shows what one run or several captured."""

from __future__ import annotations

from pathlib import Path

import click

from probes.commands.options.values import RUN_PATH, numbers
from probes.commands.rendering.advance_line import LongCommand
from probes.errors import UsageError
from probes.plain_file import write_page


@click.command(cls=LongCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RUN_PATH)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), show_default=True, help="File to write."
)
@click.option("--rank", multiple=True, callback=numbers, help="Show these ranks: 3 or 0,5 or 10:20.")
@click.pass_context
def report(context: click.Context, runs: tuple[Path, ...], out: Path, rank: int | slice | list[int] | None) -> None:
    """Write one HTML file that shows RUN: layers over steps, curves, pictures, module tree, provenance.

    The file needs no network and no other file. Several runs are compared: for two, with their first difference. Exit 1 if a run does not
    verify or cannot be read; the file says why.
    """
    from probes.report.document import report as made

    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f'`--out` takes a file that ends in `.html`, not "{out}"')
    page, found = made(runs, rank)
    write_page(out, page)
    wrong = [one for one in found if not one.verdict.ok]
    click.echo(f"{out}: {len(page.encode()) / 1e6:.1f} MB, {len(found)} {'run' if len(found) == 1 else 'runs'}")
    for one in wrong:
        click.echo(f"{one.name} does not verify; the page says why", err=True)
    if wrong:
        context.exit(1)
