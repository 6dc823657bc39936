"""`probes fmt`: format specs and keep their comments."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click

from probes.commands.options.chosen_specs import SKIP_OTHERS, chosen
from probes.errors import StorageError
from probes.spec.compose import first_bytes
from probes.spec.format import formatted


@click.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@click.option("--check", is_flag=True, help="Do not change files; show the changes and exit 1 if there are any.")
@click.option("--skip-others", is_flag=True, help=SKIP_OTHERS)
@click.pass_context
def fmt(context: click.Context, specs: tuple[str, ...], check: bool, skip_others: bool) -> None:
    """Format specs: indent by two spaces, keep comments.

    The order of keys and the quotes do not change. Values in brackets stay in brackets if they fit into 100 columns. The meaning of
    a spec, and so its identity, never changes. `-` reads stdin and writes stdout.
    """
    differ = [name for name in chosen(specs, skip_others) if _done(name, check)]
    context.exit(1 if check and differ else 0)


def _done(name: str, check: bool) -> bool:
    """Format one file; return whether it changed."""
    if name == "-":
        before = sys.stdin.buffer.read()
        after = formatted(before, "<stdin>")
        if not check:
            sys.stdout.buffer.write(after)
            return False
    else:
        path = Path(name)
        if not path.is_file():
            raise StorageError(f"spec '{name}' does not exist")
        if path.is_symlink() and not check:
            raise StorageError(f'"{path}" is a link, and a file is not changed through a link; format the file that it leads to')
        before = first_bytes(path)
        after = formatted(before, name)
        if before != after and not check:
            path.write_bytes(after)
    _tell(name, before, after, check)
    return before != after


def _tell(name: str, before: bytes, after: bytes, check: bool) -> None:
    if before == after:
        return
    if not check:
        click.echo(f"{name}: formatted")
        return
    lines = difflib.unified_diff(before.decode().splitlines(), after.decode().splitlines(), name, f"{name}, formatted", lineterm="", n=1)
    click.echo("\n".join(lines))
