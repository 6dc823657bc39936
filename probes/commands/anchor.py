"""`probes anchor`: keep the ledger head of a run in another place."""

from __future__ import annotations

from pathlib import Path

import click

from probes.commands.options.values import RUN_PATH
from probes.errors import UsageError
from probes.printable import one_line


@click.command()
@click.argument("run", type=RUN_PATH)
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), help="Write the anchor to this new file, outside of RUN.")
@click.option("--git", "in_git", is_flag=True, help="Make an annotated tag in the git repository of the current directory.")
@click.option("--note", "in_note", is_flag=True, help="Add a git note to the commit whose code RUN executed (refs/notes/probes).")
@click.option(
    "--sign",
    "key",
    metavar="KEY",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Sign with this SSH key: `--file` then has an in-toto statement, and its signature next to it (.sig); `--git` a signed tag.",
)
def anchor(run: Path, file: Path | None, in_git: bool, in_note: bool, key: Path | None) -> None:
    """Verify RUN and keep its ledger head, as a file, a git tag or a git note; without an option, print it.

    The ledger head is the hash that identifies all sealed files of RUN. Later, `probes verify RUN --anchor FILE` or `--anchor git` compares
    RUN with it, and so also detects that the whole run was replaced. With `--signers`, verify also checks who signed it.
    """
    from probes.proof.anchors.git_refs import make_note, make_tag
    from probes.proof.anchors.kept import note
    from probes.proof.anchors.places import code_commit, keep_in_file, keep_signed, refuse_inside
    from probes.proof.verify import verify

    if key is not None and file is None and not in_git:
        raise UsageError("`--sign` needs a place that can be signed: `--file FILE` or `--git`")
    if run.is_file():  # nothing of the other files would be checked
        raise UsageError(f'"{run}" is a file; an anchor is of a whole run, so name the run directory, "{run.parent}"')
    if in_git or in_note:
        refuse_inside(run, Path.cwd())
    verdict = verify(run, sha256=key is not None)
    made = note(verdict)
    click.echo(one_line(made.text()))
    if file is not None and key is not None:
        _say(f'anchored in "{file}", signed in "{keep_signed(verdict, file, run, key)}"')
    elif file is not None:
        keep_in_file(made, file, run)
        _say(f'anchored in "{file}"')
    if in_git:
        _say(f"anchored in the tag `{make_tag(made, Path.cwd(), key)}`; push it, so that it is kept elsewhere")
    if in_note:
        commit = code_commit(run)
        make_note(made, commit, Path.cwd())
        _say(f"anchored in a note of the commit {commit[:12]}; push refs/notes/probes, so that it is kept elsewhere")


def _say(text: str) -> None:
    click.echo(one_line(text), err=True)
