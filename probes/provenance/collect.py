"""Collects the origin of a run: spec, models, code, environment and random generators."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from probes.digest import PROOF, Proof
from probes.plugins import find, source
from probes.provenance.code import DIFF_NAME, code, in_unicode, without_home
from probes.provenance.code_files import are_kept, class_files, code_reads, module_files, module_records, sources
from probes.provenance.environment import environment, generators, machine
from probes.provenance.packages import packages
from probes.provenance.redact import redacted, redacted_table
from probes.provenance.weights.weights_record import ModuleTree, devices_of, model_record, weights_now
from probes.run_directory.create import where_started
from probes.run_directory.manifest import CodeRecord, FileRecord, Identity, Manifest, PluginRecord, SpecRecord, identity
from probes.spec.load import LoadedSpec

__all__ = ["CollectedProvenance", "Script", "collect", "generators", "this_script", "weights_now"]


class Script(NamedTuple):
    """The program that trains.

    Attributes:
        name: script or `-m module` as it was given; None in a notebook or an interpreter.
        file: the file that holds it.
        argv: its arguments.
    """

    name: str | None
    file: Path | None
    argv: tuple[str, ...]


class CollectedProvenance(NamedTuple):
    """The collected origin.

    Attributes:
        manifest: the content of `run.json`.
        files: further files to save next to it, by name.
    """

    manifest: Manifest
    files: dict[str, bytes]


def this_script() -> Script:
    """The program of this process, from the start of the interpreter."""
    main = sys.modules.get("__main__")
    archive = getattr(getattr(main, "__loader__", None), "archive", None)  # a zipapp is recorded as a whole
    place = archive or getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    file = Path(place) if place and Path(place).is_file() else None
    module = "__main__" if spec is None else spec.name  # that is also the name in a directory or an archive that is given as a script
    words = [str(word) for word in sys.argv] or [str(place)]  # a program may have put anything into it
    name = words[0] if module == "__main__" else f"-m {module.removesuffix('.__main__')}"
    return Script(name if file else None, file, tuple(words[1:]))


def collect(
    trees: Mapping[str, ModuleTree],
    loaded: LoadedSpec,
    *,
    run_id: str,
    script: Script | None = None,
    automatic: bool = False,
    candidate: int | None = None,
    overrides: Sequence[str] = (),
    rank: int = 0,
    world: int = 1,
    plan: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    data: Mapping[str, str] | None = None,
    attempt: int = 1,
    proof: Proof = PROOF,
    launch: str | None = None,
) -> CollectedProvenance:
    """Collect the origin of a run; models, generators and settings do not change.

    Args:
        trees: the models' module trees by their names in the spec; `""` if there is only one.
        loaded: the spec as it was loaded.
        run_id: name of the run.
        script: the program; by default that of this process.
        automatic: whether `probes run` attached the probes; else the program does so itself.
        candidate: which of the models that fit the spec it is, in the order of their first calls.
        overrides: what `--set` changed.
        rank: rank of this process.
        world: number of processes.
        plan: every binding, as plain data.
        tags: what `--tag` gave.
        data: digests of data sets by name.
        attempt: which start of the run this is; later ones save the changes of the code under a name of their own.
        proof: version of the proof that the run was begun with.
        launch: SHA-256 of the launch file of this start.

    Returns:
        The manifest, and what is to be saved next to it.
    """
    unknown: dict[str, str] = {}
    hashed = loaded.spec.provenance.weights != "never"
    models = tuple(model_record(name, tree, hashed, unknown) for name, tree in trees.items())
    program = script or this_script()
    record, diff = code(*program, automatic, unknown)
    again = f".a{attempt}" if attempt > 1 else ""
    name = DIFF_NAME if attempt == 1 else f"code{again}.diff"
    classes = class_files({type(node.module) for tree in trees.values() for node in tree.nodes.values()})
    files = module_files(program.file, more=classes | code_reads.files, here=where_started())
    record, kept = _with_modules(
        record.model_copy(update={"candidate": candidate}), files, f"sources{again}.zip" if are_kept() and rank == 0 else None, unknown
    )
    manifest = Manifest(
        format="manifest.v1",
        algorithm="blake3",
        proof=proof,
        probes=_own_version(),
        run_id=run_id,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        rank=rank,
        tags=redacted_table({in_unicode(str(name)): in_unicode(str(value)) for name, value in (tags or {}).items()}),
        identity=Identity(spec="", structure="", weights=None, code="", environment=""),
        spec=_spec_record(loaded, overrides, proof),
        models=models,
        plan=dict(plan or {}),
        code=_with_diff(record, name),
        environment=environment(devices_of(trees), world, unknown),
        machine=machine(),
        torch_build=torch.__config__.show(),
        packages=packages(),
        random=generators(),
        data=dict(data or {}),
        launch=launch,
        unknown=unknown,
    )
    beside = {name: diff} if diff else {}
    return CollectedProvenance(manifest.model_copy(update={"identity": identity(manifest)}), beside | kept)


def _with_modules(
    record: CodeRecord, files: Mapping[str, Path], zipped: str | None, unknown: dict[str, str]
) -> tuple[CodeRecord, dict[str, bytes]]:
    """The record with the imported files, and on request a copy of their sources."""
    update: dict[str, Any] = {"modules": module_records(files, unknown)}
    kept = {} if zipped is None or not files else {zipped: sources(files, unknown)}
    for name, content in kept.items():
        update["sources"] = FileRecord(name=name, sha256=sha256(content).hexdigest())
    return record.model_copy(update=update), kept


def _with_diff(record: CodeRecord, name: str) -> CodeRecord:
    """The record with the name of the file of uncommitted changes."""
    if record.git is None or record.git.diff is None:
        return record
    diff = record.git.diff.model_copy(update={"name": name})
    return record.model_copy(update={"git": record.git.model_copy(update={"diff": diff})})


def _spec_record(loaded: LoadedSpec, overrides: Sequence[str], proof: str) -> SpecRecord:
    probes = loaded.spec.probes
    return SpecRecord(
        name=loaded.spec.name,
        sha256=sha256(loaded.source).hexdigest(),
        resolved_sha256=loaded.resolved_sha256,
        identity=loaded.identity_of(proof),
        files=tuple(FileRecord(name=without_home(str(name)), sha256=digest) for name, digest in loaded.files),
        overrides=tuple(without_home(override) for override in redacted(overrides)),
        probes=tuple(probes),
        edits=tuple(name for name, probe in probes.items() if probe.edit is not None),
        plugins=_plugins(loaded),
    )


def _plugins(loaded: LoadedSpec) -> tuple[PluginRecord, ...]:
    """Every kind that came from another distribution, once."""
    probes = loaded.spec.probes.values()
    components = [*(one for probe in probes for one in (*probe.transforms, probe.edit) if one is not None), *loaded.spec.sinks.values()]
    kinds = sorted({(one.family, one.kind) for one in components if "." in one.kind})
    found = [plugin for family, kind in kinds if (plugin := find(family, kind)) is not None]
    return tuple(_plugin_record(one.kind, one.distribution, one.version, *source(one)) for one in found)


def _plugin_record(kind: str, distribution: str, version: str, file: str, digest: str) -> PluginRecord:
    return PluginRecord(kind=kind, distribution=distribution, version=version, file=FileRecord(name=without_home(file), sha256=digest))


@cache
def _own_version() -> str:
    try:
        return version("torch-probes")
    except PackageNotFoundError:
        return "unknown"
