"""`probes anchor`: keep the ledger head of a run in another place."""

from __future__ import annotations

from pathlib import Path

import click

from probes.printable import one_line


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), help="Write the anchor to this new file, outside of RUN.")
@click.option("--git", "in_git", is_flag=True, help="Make an annotated tag in the git repository of the current directory.")
def anchor(run: Path, file: Path | None, in_git: bool) -> None:
    """Verify RUN and keep its ledger head, as a file or as a git tag; without an option, print it.

    The ledger head is the hash that identifies all sealed files of RUN. Later, `probes verify RUN --anchor FILE` or `--anchor git` compares
    RUN with it, and so also detects that the whole run was replaced.
    """
    from probes.proof.anchor_places import keep_in_file, keep_in_git, note
    from probes.proof.verify import verify

    made = note(verify(run))
    click.echo(one_line(made.text()))
    if file is not None:
        keep_in_file(made, file, run)
        click.echo(one_line(f'anchored in "{file}"'), err=True)
    if in_git:
        click.echo(one_line(f"anchored in the tag `{keep_in_git(made, Path.cwd())}`; push it, so that it is kept elsewhere"), err=True)
