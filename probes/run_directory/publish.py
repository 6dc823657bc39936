"""Give a finished file its name, without ever replacing another file."""

from __future__ import annotations

import os
from pathlib import Path

from probes.errors import StorageError
from probes.journal.raw_file import sync_directory


def publish(temporary: Path, path: Path) -> None:
    """Give a file that is on the device its name, and wait until the name is on the device.

    Args:
        temporary: the file; this name goes.
        path: the new name, in the same directory.

    Raises:
        StorageError: something else has that name.
    """
    try:
        # A rename would replace; a link fails instead. A kill between the two steps leaves both names, which sealing again resolves.
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError as error:
        raise StorageError(f'"{path}" exists; it is not replaced') from error
    except OSError:
        _claim(temporary, path)
    else:
        temporary.unlink()
    sync_directory(path.parent)


def _claim(temporary: Path, path: Path) -> None:
    """The same without links: reserve the name with an empty file, then replace that."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError as error:
        raise StorageError(f'"{path}" exists; it is not replaced') from error
    temporary.replace(path)
