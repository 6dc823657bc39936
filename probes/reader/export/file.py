"""Captures written to a file of another tool."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from probes.errors import StorageError, UsageError
from probes.plain_file import replacing
from probes.reader.export.arrow_file import write_arrow, write_parquet
from probes.reader.export.jsonl_file import write_jsonl
from probes.reader.export.npz_file import write_npz
from probes.reader.export.safetensors_file import write_safetensors
from probes.reader.export.zarr_directory import write_zarr
from probes.reader.series import Series

WRITERS: dict[str, Callable[..., None]] = {
    "arrow": write_arrow,
    "jsonl": write_jsonl,
    "npz": write_npz,
    "parquet": write_parquet,
    "safetensors": write_safetensors,
}
ZARR = "zarr"
FORMATS = (*WRITERS, ZARR)
TABLES = ("arrow", "parquet")
SUFFIXES = {".feather": "arrow", ".pq": "parquet", **{f".{name}": name for name in FORMATS}}


def export(
    path: str | Path,
    series: Sequence[Series],
    *,
    kind: str | None = None,
    wide: bool = False,
    about: Mapping[str, str] | None = None,
) -> None:
    """Write the captures of some series to a file, which appears when it is complete.

    Raises:
        UsageError: the format is not known, or cannot hold the captures.
        StorageError: the folder does not exist.
        MissingExtra: the format needs a package that is not installed.
    """
    out = Path(path)
    kind = kind or SUFFIXES.get(out.suffix)
    if kind not in FORMATS:
        known = ", ".join(f"`{suffix}`" for suffix in SUFFIXES)
        raise UsageError(f'"{out.name}" names no format that is known; the suffix is one of {known}, or name the format')
    if not out.parent.is_dir():
        raise StorageError(f'the folder "{out.parent}" does not exist')
    if kind == ZARR:
        _refuse_wide(kind, wide)
        with _replacing_folder(out) as folder:
            write_zarr(folder, [one for many in series for one in many.by_dtype()], about=about or {})
        return
    with replacing(out) as stream:
        write(stream, series, kind, wide=wide, about=about)


def write(stream: IO[bytes], series: Sequence[Series], kind: str, *, wide: bool = False, about: Mapping[str, str] | None = None) -> None:
    """Write the captures of some series, one dtype after the other, in one of the formats.

    Raises:
        UsageError: the format cannot hold the captures.
        MissingExtra: the format needs a package that is not installed.
    """
    _refuse_wide(kind, wide)
    WRITERS[kind](stream, [one for many in series for one in many.by_dtype()], wide=wide, about=about or {})


def _refuse_wide(kind: str, wide: bool) -> None:
    if wide and kind not in TABLES:
        raise UsageError(f"`{kind}` has no wide form; it is for {' and '.join(f'`{name}`' for name in TABLES)}")


@contextmanager
def _replacing_folder(path: Path) -> Iterator[Path]:
    """Make a temporary folder that is renamed once it is complete; an existing folder is replaced only if it is a zarr group."""
    if path.exists() and not any((path / name).is_file() for name in ("zarr.json", ".zgroup")):
        raise UsageError(f'"{path}" exists and is not a zarr group; choose another name')
    temporary, before = (path.with_name(f".{path.name}.{os.getpid()}.{word}.tmp") for word in ("new", "old"))
    try:
        temporary.mkdir()
        yield temporary
        if path.exists():
            path.rename(before)
        temporary.rename(path)
    finally:
        if before.exists() and not path.exists():  # interrupted between the two
            before.rename(path)
        for folder in (temporary, before):
            shutil.rmtree(folder, ignore_errors=True)
