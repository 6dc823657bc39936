"""The file in which the ranks of one start agree: its attempt, the number of processes, and the epoch that all begin with."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probes.digest import canonical
from probes.errors import FileRefused, StorageError
from probes.plain_file import plain_object, read_plain
from probes.run_directory.file_name import attempt_of_manifest, manifest_files
from probes.run_directory.publish import write_whole

_NAME = re.compile(r"launch(?:\.a([1-9][0-9]{0,9}))?\.json")


class LaunchRecord(BaseModel):
    """One start of the processes of a run."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    format: str = Field(default="launch.v1", pattern="^launch[.]v1$", description="Name and version of this format.")
    run_id: str = Field(description="Name of the run.")
    attempt: int = Field(ge=1, lt=1 << 32, description="Number of the start, the same on every rank.")
    world: int = Field(ge=1, lt=1 << 32, description="Number of processes.")
    next_epoch: int = Field(ge=0, lt=1 << 32, description="The first epoch after the last one that is complete on every rank.")
    launcher: str = Field(description="What started the processes; empty if it has no name here.")
    job: str = Field(description="How the launcher calls the job, the same after a restart.")
    restart: int = Field(ge=0, description="How often the launcher had started the processes again.")
    agent: str = Field(description="The process that had started the first rank to come.")
    ticks: int = Field(default=0, ge=0, description="When the file was written, in ticks since the start of that machine.")
    token: str = Field(description="The same on every rank of this start, and of no other.")
    started: str = Field(description="When the first rank came, UTC.")
    spec: str = Field(default="", description="Identity of the spec, which all ranks have; empty if it was not recorded.")


def launch_name(attempt: int = 1) -> str:
    """The name of the launch file of one start: `launch.json`, then `launch.a2.json`."""
    return f"launch.a{attempt}.json" if attempt > 1 else "launch.json"


def is_launch_file(name: str) -> bool:
    """Whether a name is exactly that of a launch file."""
    found = _NAME.fullmatch(name)
    return found is not None and launch_name(int(found[1] or 1)) == name


def launches(directory: Path) -> dict[int, LaunchRecord]:
    """The starts of a run by attempt; empty for a run of one process, and of a release that had no launch files.

    Raises:
        FileRefused: a launch file is not one.
    """
    names = sorted(path.name for path in directory.glob("launch*.json") if is_launch_file(path.name))
    found = [one for name in names if (one := _read_if_there(directory / name)) is not None]
    manifests = manifest_files(directory)
    if not found and not any(".rank-" in path.name for path in manifests):
        return {}
    runs = {one.run_id for one in found}
    named = _stated(manifests[0], "run_id") if manifests else None
    if found and len(runs | ({named} if named is not None else set())) > 1:
        raise FileRefused("launch-differs", f'"{directory / names[0]}" belongs to another run than the files next to it')
    for attempt, manifest in {attempt_of_manifest(path.name): path for path in reversed(manifests)}.items():
        _require_named(directory / launch_name(attempt), manifest)
    return {one.attempt: one for one in sorted(found, key=lambda one: one.attempt)}


def _require_named(path: Path, manifest: Path) -> None:
    """Refuse a launch file whose digest differs from the one in a manifest of its start: the file decides which attempts count."""
    digest = sha256(read_plain(path)).hexdigest() if path.exists() else None
    if _stated(manifest, "launch") != digest:
        words = f'is missing; "{manifest.name}" names it' if digest is None else f'is not the launch file that "{manifest.name}" names'
        raise FileRefused("launch-differs", f'"{path}" {words}')


def launch_digest(directory: Path, attempt: int) -> str:
    """SHA-256 of the launch file of a start, which the manifests of all its ranks state."""
    return sha256(read_plain(directory / launch_name(attempt))).hexdigest()


def worlds(directory: Path) -> dict[int, int]:
    """The number of processes of each start that has a launch file."""
    return {attempt: one.world for attempt, one in launches(directory).items()}


def _read_if_there(path: Path) -> LaunchRecord | None:
    """A launch file; None if the next start has removed it since it was listed, as no rank had begun."""
    try:
        return _read(path)
    except StorageError:
        if path.exists():
            raise
        return None


def _read(path: Path) -> LaunchRecord:
    try:
        text = read_plain(path)
        stated = plain_object(text)
        found = LaunchRecord.model_validate(stated)
    except (ValueError, ValidationError) as error:
        raise FileRefused("launch-differs", f'"{path}" is not a launch file: {str(error).splitlines()[0]}') from error
    if canonical(stated) + b"\n" != text:
        raise FileRefused("launch-differs", f'"{path}" is not in the canonical form of a launch file')
    if launch_name(found.attempt) != path.name:
        raise FileRefused("launch-differs", f'"{path}" states attempt {found.attempt}, which is not the one of its name')
    return found


def _stated(manifest: Path, key: str) -> str | None:
    """A text of a manifest; None if it is missing, which `verify` reports."""
    try:
        found = plain_object(read_plain(manifest)).get(key)
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def write_launch(directory: Path, record: LaunchRecord) -> None:
    """Write the launch file under its final name, complete from the first moment.

    Raises:
        StorageError: there is one already.
        OSError: the disk does not take it.
    """
    write_whole(directory / launch_name(record.attempt), canonical(record.model_dump()) + b"\n")
