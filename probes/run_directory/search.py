"""Which run a person means by a path or a URL, and the runs below a directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from probes.errors import StorageError
from probes.plain_file import plain_object, read_plain
from probes.printable import shortened
from probes.progress.stderr import tell
from probes.run_directory.file_name import is_epoch_file, ledger_files, manifest_name

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,3}([^/].*)", re.DOTALL)  # the command line reduces `//` of a URL to `/` in a path


def is_run(path: Path) -> bool:
    """Whether a directory holds a run."""
    return _is_stated(path) or any(is_epoch_file(one.name) for one in path.glob("epoch-*"))


def _is_stated(path: Path) -> bool:
    """Whether a manifest or a ledger says that a directory holds a run; other programs also write files such as `epoch-0001.h5`."""
    return (path / manifest_name()).is_file() or bool(ledger_files(path))


def run_directories(
    path: Path, *, inside: bool = False, links: list[Path] | None = None, unread: list[StorageError] | None = None
) -> Iterator[Path]:
    """The run directories at or below a path; links are not followed.

    Args:
        path: where to begin.
        inside: also those in the directory of another run, which are not part of that run.
        links: takes the links to run directories.
        unread: takes the errors of directories that cannot be read.

    Raises:
        StorageError: without `unread`, a directory cannot be read, or its path is too long, so that there may be runs in it.
    """
    waiting = [path]
    while waiting:
        found = waiting.pop()
        try:
            if found.is_dir() and is_run(found):
                yield found
                if not inside:
                    continue
            below = sorted((one for one in found.iterdir() if one.is_dir()), reverse=True) if found.is_dir() else []
            waiting += [one for one in below if not one.is_symlink()]
            if links is not None:
                links += [one for one in below if one.is_symlink() and is_run(one)]
        except OSError as error:
            refused = StorageError(f'"{shortened(str(found), 200)}" cannot be searched for runs: {error.strerror}')
            if unread is None:
                raise refused from error
            unread.append(refused)


def remote_url(place: str | Path) -> str | None:
    """The URL in a text, or in a path made of a URL; None for a local path."""
    found = _URL.fullmatch(str(place))
    if found is None or Path(place).exists():
        return None
    scheme, rest = found.groups()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{rest.rstrip('/')}"


def meant_run(path: str | Path) -> Path:
    """The run that a path means: of a directory of runs the one that was begun last, which is named on stderr; else the path.

    Raises:
        StorageError: there is nothing there, or no run in it.
    """
    found = Path(path)
    if not found.exists():
        raise StorageError(f'"{found}" does not exist; `probes ls` lists the runs under runs/')
    if not found.is_dir() and not found.is_file():
        raise StorageError(f'"{found}" is neither a directory nor a regular file')
    if not found.is_dir() or is_run(found):
        return found
    newest = newest_run(found)
    if newest is None:
        raise StorageError(f'"{found}" holds no run: there is no run.json, no ledger and no epoch file in it')
    tell(f"reading the newest run, {newest}")
    return newest


def newest_run(path: Path) -> Path | None:
    """The run at or below a directory that was begun last, at any depth; None if there is none.

    A link to a run counts as one. A directory that cannot be searched, such as `lost+found`, is named on stderr.

    Raises:
        StorageError: there is none, and a directory cannot be searched.
    """
    links: list[Path] = []
    unread: list[StorageError] = []
    runs = [*run_directories(path, links=links, unread=unread), *links]
    if unread and not runs:
        raise unread[0]
    for error in unread:
        tell(str(error))
    return max(runs, key=lambda run: (_is_stated(run), *begun(run)), default=None)


def begun(run: Path) -> tuple[str, str, str]:
    """When a run was begun, as a key to sort by: by its first manifest, or by its directory if that cannot be read."""
    with suppress(StorageError, ValueError):
        manifest = plain_object(read_plain(run / manifest_name()))
        started, run_id = manifest.get("started"), manifest.get("run_id")
        if isinstance(started, str) and isinstance(run_id, str):
            return started, run_id, str(run)
    changed = datetime.fromtimestamp(run.stat().st_mtime, UTC)
    return changed.isoformat(timespec="seconds"), run.name, str(run)
