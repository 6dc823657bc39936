"""Files that have their name only when all of their bytes are on the device."""

from __future__ import annotations

import os
from pathlib import Path

from probes.errors import StorageError
from probes.plain_file import open_above, sync_directory
from probes.run_directory.file_name import temporary_name


def write_whole(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a file under a temporary name, then give it its name.

    Args:
        path: where it is to be.
        content: all of its bytes.
        replace: whether it takes the place of a file of this name.

    Raises:
        StorageError: there is one already, and it is not to be replaced.
        OSError: the disk does not take it; no part of it stays.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        handle = open_above(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            publish(temporary, path)
    except BaseException:  # an interrupt leaves no temporary file either; raised again
        temporary.unlink(missing_ok=True)
        raise


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
