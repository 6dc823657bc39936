"""The start of a run: claims its directory, and writes its origin before the first step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from probes.digest import PROOF
from probes.errors import StorageError, UsageError
from probes.plan import Plan
from probes.provenance.collect import Script, collect
from probes.run_directory.create import claim, default_directory, new_run_id, write_start
from probes.run_directory.file_name import manifest_files, manifest_name
from probes.run_directory.launch.join import Newcomer, join
from probes.run_directory.launch.launch_file import LaunchRecord, launch_digest, launches
from probes.run_directory.launch.launcher import launcher, place_in_launch, without_rank
from probes.run_directory.manifest import Manifest, written
from probes.run_directory.owner.ownership import Ownership, own
from probes.run_directory.resume import PreviousAttempts, previous_attempts
from probes.runner.disk_space import DiskSpace
from probes.spec.load import LoadedSpec

SPEC = "spec.yaml"


@dataclass(frozen=True)
class Wanted:
    """Settings of the caller for a run, besides spec and model.

    Attributes:
        out: the run directory; by default `runs/<name>/<run-id>`.
        resume: continue the run that is there, if there is one.
        take_over: end the claim of a process that has ended, or is on another machine.
        tags: free names and values for the manifest.
        data: digests of the data sets by name.
        script: the program; by default that of the process.
        automatic: whether `probes run` attaches the probes.
        candidate: which of the models that fit the spec it is, in the order of their first calls.
    """

    out: str | os.PathLike[str] | None = None
    resume: bool = False
    take_over: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    script: Script | None = None
    automatic: bool = False
    candidate: int | None = None


class Start(NamedTuple):
    """A run that is ready to begin.

    Attributes:
        owned: its directory.
        head: what every journal says of it.
        past: what earlier starts came to.
        launch: the start that all ranks share, if there are several.
    """

    owned: Ownership
    head: dict[str, Any]
    past: PreviousAttempts
    launch: LaunchRecord | None = None


def begin(plan: Plan, wanted: Wanted) -> Start:
    """Claim the directory and write the manifest.

    Raises:
        StorageError: the directory cannot be used.
        UsageError: the directory holds another run, or a run that cannot be identified.
    """
    if wanted.take_over and not wanted.resume:
        raise UsageError("taking over is for resuming: add `--resume` (`resume=True`)")
    by = launcher(world())
    if wanted.resume and wanted.out is None and not by.id:
        raise UsageError("resuming needs the directory of the run: add `--out DIR` (`out=`)")
    run_id = new_run_id(by.job if by.id or world() > 1 else "")
    directory = (Path(wanted.out) if wanted.out is not None else default_directory(plan.loaded.spec.name, run_id)).absolute()
    DiskSpace(plan, directory).before()
    if by.id or world() > 1 or (wanted.resume and launches(directory)):
        newcomer = Newcomer(directory, run_id, by, world(), part(), wanted.resume, wanted.take_over, plan.loaded.identity_hash)
        begun = _begun(directory)
        return _published(plan, wanted, *join(newcomer if begun is None else replace(newcomer, run_id=begun.run_id)))
    before = _begun(directory) if wanted.resume else None
    if before is None:
        try:
            owned = claim(directory, run_id)
        except StorageError as error:
            raise StorageError("; ".join(filter(None, (str(error), without_rank())))) from error
        return _published(plan, wanted, owned)
    owned = own(directory, before.run_id, take_over=wanted.take_over)
    with owned.released_if_it_fails():
        past = previous_attempts(owned)
    return _published(plan, wanted, owned, None, past)


def _published(
    plan: Plan, wanted: Wanted, owned: Ownership, launch: LaunchRecord | None = None, past: PreviousAttempts | None = None
) -> Start:
    """The start, once its manifest is written."""
    past = past or PreviousAttempts()
    with owned.released_if_it_fails():
        before = _begun(owned.directory, part()) if past.attempt > 1 else None
        _check_comparisons(plan, past)
        run_id = before.run_id if before is not None else launch.run_id if launch is not None else owned.claim.run_id
        digest = launch_digest(owned.directory, past.attempt) if launch is not None else None
        return Start(owned, _publish(plan, wanted, owned, run_id, past, before, digest), past, launch)


def called_as_before(loaded: LoadedSpec, wanted: Wanted) -> LoadedSpec:
    """The spec under the name of the run that it continues, if it does not state its own: its file may have another name by now.

    Raises:
        StorageError: the manifest of the run cannot be read.
    """
    before = _begun(Path(wanted.out)) if wanted.resume and wanted.out is not None else None
    return loaded if before is None else loaded.called(before.spec.name)


def candidate_before(directory: Path) -> int | None:
    """The index of the model that the run in a directory captured, among those that fit the spec; None without a run or an index."""
    before = _begun(directory)
    return None if before is None else before.code.candidate


def _begun(directory: Path, part: int | None = None) -> Manifest | None:
    """The first manifest of the run in a directory, of a part if it has one: stages of a pipeline have models of their own."""
    own, whole = (directory / manifest_name(1, rank) for rank in (part, None))
    path = next((path for path in (own, whole, *manifest_files(directory)) if path.exists()), None)
    if path is None:
        return None
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StorageError(f"'{path}' cannot be read, so the run cannot be resumed: {str(error).splitlines()[0]}") from error


def _publish(
    plan: Plan, wanted: Wanted, owned: Ownership, run_id: str, past: PreviousAttempts, before: Manifest | None, launch: str | None
) -> dict[str, Any]:
    """Write the manifest, the spec and the changes of the code; return the common part of a journal's HEAD."""
    provenance = collect(
        plan.trees,
        plan.loaded,
        run_id=run_id,
        script=wanted.script,
        automatic=wanted.automatic,
        candidate=wanted.candidate,
        overrides=plan.loaded.overrides,
        rank=rank(),
        world=world(),
        plan=plan.as_dict(),
        tags=wanted.tags,
        data=wanted.data,
        attempt=past.attempt,
        proof=PROOF if before is None else before.proof,
        launch=launch,
    )
    manifest = provenance.manifest
    if before is not None:
        _check_same(before, manifest, owned.directory)
    files = {} if part() else provenance.files if (owned.directory / SPEC).exists() else {SPEC: plan.loaded.source, **provenance.files}
    files = {**files, manifest_name(past.attempt, part()): written(manifest.model_dump(mode="json")).encode()}
    write_start(owned, files, again=before is not None)
    return {
        "run_id": run_id,
        "rank": rank(),
        "manifest": manifest.model_dump(mode="json"),
        "spec": plan.loaded.source.decode(),
        "resolved": plan.loaded.resolved.decode(),
    }


def _check_comparisons(plan: Plan, past: PreviousAttempts) -> None:
    """Refuse to continue if values are compared with the first step: its value is in no file."""
    found = next((one for one in plan.bindings if one.second is not None and one.second.step == "first"), None)
    if found is not None and past.attempt > 1:
        raise UsageError(
            f"probe `{found.name}` compares with the first step of the run, whose value is not stored, so the run cannot be resumed; "
            "compare with a run that holds it: `against: {run: DIR}`"
        )


def _check_same(before: Manifest, now: Manifest, directory: Path) -> None:
    """Refuse to continue a run with another spec or model."""
    for what, name in (("spec", "spec"), ("structure", "model")):
        was, found = getattr(before.identity, what), getattr(now.identity, what)
        if was != found:
            place = f', see "{directory / SPEC}"' if what == "spec" and (directory / SPEC).exists() else ""
            raise UsageError(
                f"run {before.run_id} was begun with another {name} ({what} {was[:8]}, now {found[:8]}{place}); "
                "a run has one spec and one model: begin another with `out`"
            )


def has_process_group() -> bool:
    """Whether `torch.distributed` is initialized in this process."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank() -> int:
    """Rank of this process among the processes of a launch; 0 for a single process."""
    if has_process_group():
        return torch.distributed.get_rank()
    return place_in_launch()[0]


def world() -> int:
    """The number of processes of the launch."""
    if has_process_group():
        return torch.distributed.get_world_size()
    return place_in_launch()[1]


def part() -> int | None:
    """Rank of this process if the launch has several, each of which writes its own files."""
    return rank() if world() > 1 else None
