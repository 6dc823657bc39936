"""Specs on the command line: which files are specs, and the changes of `--set-file` and `--set`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probes.errors import StorageError
from probes.spec.spec_files import file_bytes, is_spec

SKIP_OTHERS = "Skip files that are not specs by their content; for hooks that get every YAML file."


def chosen(names: Sequence[str], skip_others: bool) -> list[str]:
    """The names of a command line without the files that are not specs, if the option is given; a missing file stays."""
    return [name for name in names if not (skip_others and Path(name).is_file() and not is_spec(file_bytes(Path(name))))]


def changes(files: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of the files, then the overrides, which win.

    Raises:
        StorageError: a file cannot be read.
    """
    return (*(line for file in files for line in lines(file)), *overrides)


def lines(file: str) -> list[str]:
    """Return the `PATH=VALUE` lines of a file without comments and empty lines.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        text = file_bytes(Path(file)).decode()
    except UnicodeDecodeError:
        raise StorageError(f'"{file}" is not UTF-8; save it as UTF-8') from None
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]
