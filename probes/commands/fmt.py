"""`probes fmt`: format specs and keep their comments."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click

from probes.commands.options.specs import SKIP_OTHERS, chosen
from probes.commands.rendering.failure import answer
from probes.errors import SpecError, StorageError
from probes.spec.format import formatted
from probes.spec.spec_files import first_bytes


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
    codes = [_done(name, check) for name in chosen(specs, skip_others)]
    context.exit(min((code for code in codes if code > 1), default=max(codes, default=0)))  # as `probes check`


def _done(name: str, check: bool) -> int:
    """Format one file and print what changed, or why it cannot be formatted; return the exit code for this file alone."""
    try:
        before, after = _stdin() if name == "-" else _file(Path(name), check)
    except (SpecError, StorageError) as error:
        return answer(error)
    if name == "-" and not check:
        sys.stdout.buffer.write(after)
        return 0
    if before != after:
        click.echo(_difference(name, before, after) if check else f"{name}: formatted")
    return 1 if check and before != after else 0


def _stdin() -> tuple[bytes, bytes]:
    before = sys.stdin.buffer.read()
    return before, formatted(before, "<stdin>")


def _file(path: Path, check: bool) -> tuple[bytes, bytes]:
    """The bytes of a file before and after; unless it is only checked, it then holds the latter.

    Raises:
        SpecError: it cannot be formatted.
        StorageError: it cannot be read or written.
    """
    if not path.exists():
        raise StorageError(f'spec "{path}" does not exist')
    if path.is_symlink() and not check:
        raise StorageError(f'"{path}" is a link, and a file is not changed through a link; format the file that it leads to')
    before = first_bytes(path)
    after = formatted(before, str(path))
    if before != after and not check:
        try:
            _overwrite(path, before, after)
        except OSError as error:
            raise StorageError(f'cannot write "{path}": {error.strerror}') from error
    return before, after


def _overwrite(path: Path, before: bytes, after: bytes) -> None:
    """Write over the bytes of a file, so that it keeps its mode and owner; if the disk is full, or Ctrl-C is pressed, it is as before."""
    with path.open("r+b", buffering=0) as file:
        rest = memoryview(after)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            file.truncate(len(after))
        except (OSError, KeyboardInterrupt):
            file.seek(0)
            file.write(before)  # needs no space
            file.truncate(len(before))
            raise


def _difference(name: str, before: bytes, after: bytes) -> str:
    lines = difflib.unified_diff(before.decode().splitlines(), after.decode().splitlines(), name, f"{name}, formatted", lineterm="", n=1)
    return "\n".join(lines) or f"{name}: only the ends of lines differ; the formatted file ends each line, also the last, with LF"
