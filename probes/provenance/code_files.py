"""The files of a program's own code, outside of installed packages: of modules that it imports, and what else Python reads as code.

A loader of one's own, or `runpy`, runs a file that is in no table of modules.
"""

from __future__ import annotations

import _io
import io
import os
import sys
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

from probes.provenance.code import without_home
from probes.provenance.packages import is_installed
from probes.provenance.redact import redacted_source
from probes.run_directory.create import working_directory
from probes.run_directory.manifest import FileRecord

LARGEST_SOURCE = 1 << 20
LARGEST_SOURCES = 16 << 20
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file, so that equal sources are equal bytes
KEEP = "PROBES_KEEP_SOURCES"
MOST_READS = 10_000  # files
OPEN_CODE = _io.open_code


def module_files(
    script: Path | None, modules: Mapping[str, object] | None = None, more: Iterable[str] = (), here: Path | None = None
) -> dict[str, Path]:
    """The files of imported modules that no installed package has: untracked, ignored and submodule files, too.

    Args:
        script: the file of the program, which is one of them.
        modules: imported modules by name; by default those of this process.
        more: further files, such as those of modules that are in no table, or were imported by another process.
        here: the directory that names are relative to; by default the working directory.

    Returns:
        Name of the file -> its path; the name is relative to that directory where the file is below it, else absolute.
    """
    here = working_directory() if here is None else here
    found = {} if script is None else {_name(script, here): script}
    loaded = list((sys.modules if modules is None else modules).values())
    for place in (*map(file_of, loaded), *more):
        if isinstance(place, str) and not is_installed(place) and _is_file(path := Path(place)):
            found[_name(path, here)] = path
    return dict(sorted(found.items()))


def file_of(module: object) -> object:
    """The file of a module, or the archive that it is in; modules that are loaded at the first use of an attribute stay unloaded."""
    try:
        own = object.__getattribute__(module, "__dict__")
    except AttributeError:  # a program may put any object into the table of modules
        return None
    archive = getattr(own.get("__loader__"), "archive", None)
    return archive if isinstance(archive, str) else own.get("__file__")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a program may put any text into a module's `__file__`
        return False


def class_files(classes: Iterable[type]) -> set[str]:
    """The source files of classes that are in no module table: a file may run without an entry in `sys.modules`.

    Args:
        classes: of modules of a model, with a method `forward`.
    """
    codes = (getattr(getattr(one, "forward", None), "__code__", None) for one in classes)
    return {code.co_filename for code in codes if code is not None}


def module_records(files: Mapping[str, Path], unknown: dict[str, str]) -> tuple[FileRecord, ...]:
    """The digest of each file.

    Args:
        files: as `module_files` returns them.
        unknown: takes which could not be read, and why.
    """
    records = []
    for name, path in files.items():
        try:
            records.append(FileRecord(name=name, sha256=_digest(*_state(path))))
        except OSError as error:
            unknown[f"code.modules.{name}"] = f"cannot be read: {error.strerror}"
    return tuple(records)


def sources(files: Mapping[str, Path], unknown: dict[str, str]) -> bytes:
    """A zip file with the sources, secrets in them written `***`; the same sources give the same bytes.

    Args:
        files: as `module_files` returns them.
        unknown: takes how many were left out.
    """
    made, left_out = _zipped(tuple((name, *_state(path)) for name, path in files.items() if path.is_file()))
    if left_out:
        unknown["code.sources"] = f"{left_out} of {len(files)} files are not Python sources, or are too large to keep; their digests are"
    return made


def are_kept() -> bool:
    """Whether sources are kept: `PROBES_KEEP_SOURCES=0` and `probes run --no-sources` turn it off."""
    return os.environ.get(KEEP) != "0"


def _state(path: Path) -> tuple[Path, int, int]:
    """The cached content of a file, valid until it changes, so that the many runs of one process read it once."""
    found = path.stat()
    return path, found.st_mtime_ns, found.st_size


@lru_cache(4096)
def _digest(path: Path, _time: int, _size: int) -> str:
    return sha256(path.read_bytes()).hexdigest()


@lru_cache(2)
def _zipped(files: tuple[tuple[str, Path, int, int], ...]) -> tuple[bytes, int]:
    """The zip file, and the number of files that were left out."""
    made, total, left_out = io.BytesIO(), 0, 0
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path, _, size in files:
            if path.suffix != ".py" or size > min(LARGEST_SOURCE, LARGEST_SOURCES - total):
                left_out += 1
                continue
            text = redacted_source(path.read_bytes())
            total += len(text)
            archive.writestr(zipfile.ZipInfo(name.lstrip("/").replace("~", "home"), EPOCH), text, zipfile.ZIP_DEFLATED)
    return made.getvalue(), left_out


def _name(path: Path, here: Path) -> str:
    absolute = here / path
    return without_home(str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute))


class CodeReads:
    """Notes what `io.open_code` opens, which imports and `runpy` read sources and their caches with.

    Attributes:
        files: paths of sources of the program's own that were read while this listened.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._listeners: set[int] = set()
        self._found = OPEN_CODE

    def add(self, listener: object) -> None:
        """Begin to note, until the last listener is removed."""
        self._listeners.add(id(listener))
        if len(self._listeners) == 1 and _io.open_code != self._open_code:
            self._found = _io.open_code
            _io.open_code = io.open_code = self._open_code

    def remove(self, listener: object) -> None:
        """Note no more once nobody listens, and put back what was found, if nobody has replaced it since."""
        self._listeners.discard(id(listener))
        if not self._listeners and _io.open_code == self._open_code:
            _io.open_code = io.open_code = self._found

    def _open_code(self, path: str) -> Any:
        """Note a file, and open it."""
        if self._listeners:
            with suppress(Exception):  # whatever the path is, the program gets what the function itself says of it
                self._note(os.fspath(path))
        return self._found(path)

    def _note(self, path: str) -> None:
        source = source_from_cache(path) if path.endswith(".pyc") else path
        if not is_installed(source) and len(self.files) < MOST_READS:
            self.files.add(source)


code_reads = CodeReads()
"""The instance of this process."""
