"""Digests of data sets that are files or directories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from probes.digest import blake3_hex, canonical, file_hex
from probes.errors import StorageError
from probes.provenance.code import in_unicode


def data_digests(places: Mapping[str, Path]) -> dict[str, str]:
    """The digest of each file or directory by name, for `data` of the manifest.

    Args:
        places: name -> path of a file or a directory.

    Raises:
        StorageError: a path does not exist or cannot be read.
    """
    return {name: f"blake3:{_digest(path)}" for name, path in places.items()}


def _digest(path: Path) -> str:
    """BLAKE3 of a file's bytes; for a directory, of canonical JSON of the sorted `[relative path, digest]` of its files, links followed."""
    if not path.exists():
        raise StorageError(f'"{path}" does not exist; `--data NAME=PATH` takes a file or a directory')
    try:
        if path.is_file():
            return file_hex(path)
        rows = sorted([in_unicode(str(below.relative_to(path))), file_hex(below)] for below in _files(path))
        return blake3_hex(canonical(rows))
    except OSError as error:
        raise StorageError(f'"{error.filename}" cannot be read: {error.strerror}') from error


def _files(directory: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files below a directory; a link to a directory above it is not followed again."""
    place = directory.resolve()
    for one in directory.iterdir() if place not in above else ():
        if one.is_dir():
            yield from _files(one, (*above, place))
        elif one.is_file():
            yield one
