"""The files besides a recorded spec that a replay needs: code of transforms, tensors of edits, runs to compare with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from probes.capture_file.read import SealedFile
from probes.errors import UsageError
from probes.plain_file import read_plain
from probes.provenance.code import with_home
from probes.run_directory.manifest import FileRecord, Manifest

CODE = ".py"


def code_files(manifest: Manifest) -> tuple[FileRecord, ...]:
    """The files whose functions the recorded spec ran, with their digests; names are relative to the spec."""
    return tuple(one for one in manifest.spec.files if one.name.endswith(CODE))


def spec_folder(manifest: Manifest, directory: Path) -> Path:
    """The folder of the spec, relative to the directory in which the command runs again."""
    return directory / Path(with_home(manifest.spec.files[0].name)).parent if manifest.spec.files else directory


def lay_files(run: Path, manifest: Manifest, directory: Path, room: Path) -> Path:
    """Recreate the relative paths of the spec below a temporary folder, and return the folder for the spec.

    Code is copied, with the recorded digest: from where it was, or from the sources that are kept next to the run. All else is linked.

    Args:
        run: the recorded run.
        manifest: its manifest.
        directory: where the command will be run.
        room: an empty folder.

    Raises:
        UsageError: code with the recorded digest is neither there nor kept.
    """
    named = named_files(run, manifest)
    above = max((sum(part == ".." for part in Path(name).parts) for name in named), default=0)
    folder = room.joinpath(*["above"] * above, "spec")
    folder.mkdir(parents=True)
    origin = spec_folder(manifest, directory)
    for one in code_files(manifest):
        _place(folder, one.name, room).write_bytes(_code(run, manifest, one, origin))
    for name in named:
        place = _place(folder, name, room)
        if not place.exists() and (origin / name).exists():
            place.symlink_to((origin / name).resolve())
    return folder


def named_files(run: Path, manifest: Manifest) -> list[str]:
    """The relative paths in the recorded spec: code, tensors of edits, and runs."""
    return sorted({*_relative(_resolved(run, manifest)), *(one.name for one in code_files(manifest))})


def _place(folder: Path, name: str, room: Path) -> Path:
    place = Path(os.path.normpath(folder / name))
    if not place.is_relative_to(room):
        raise UsageError(f'the recorded spec names "{name}", which is too far above it')
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _resolved(run: Path, manifest: Manifest) -> Any:
    """The resolved spec of a sealed file of the run; empty if there is none."""
    for path in sorted(run.glob("epoch-*.h5")):
        text = SealedFile(path).root.content("resolved")
        if sha256(text).hexdigest() == manifest.spec.resolved_sha256:
            return json.loads(text)
    return {}


def _relative(resolved: Any) -> Iterator[str]:
    """The relative paths of a resolved spec to tensors of edits, and to runs."""
    for probe in resolved.get("probes", {}).values():
        for part in ((probe.get("edit") or {}).get("from"), probe.get("against")):
            for key in ("file", "run"):
                found = part.get(key) if isinstance(part, dict) else None
                if isinstance(found, str) and not Path(found).is_absolute():
                    yield found


def _code(run: Path, manifest: Manifest, wanted: FileRecord, origin: Path) -> bytes:
    """The bytes of a file of code, with the recorded digest."""
    found = origin / wanted.name
    if found.is_file() and sha256(found.read_bytes()).hexdigest() == wanted.sha256:
        return found.read_bytes()
    kept = manifest.code.sources
    if kept is not None and (run / kept.name).is_file():
        read_plain(run / kept.name)  # raises for anything but a regular file
        for content in _members(run / kept.name):
            if sha256(content).hexdigest() == wanted.sha256:
                return content
    raise UsageError(f'the code "{wanted.name}" with SHA-256 {wanted.sha256[:12]} is neither in "{origin}" nor kept in "{run}"')


def _members(path: Path) -> Iterator[bytes]:
    try:
        with ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(CODE):
                    yield archive.read(name)
    except BadZipFile:
        return
