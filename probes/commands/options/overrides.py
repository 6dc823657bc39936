"""The `PATH=VALUE` texts of `--set-file` and `--set`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probes.errors import StorageError
from probes.spec.compose import file_bytes


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
