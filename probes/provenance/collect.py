"""Collects the origin of a run: spec, models, code, environment and random generators, and what of it changes while the run continues."""

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
from probes.provenance.child_processes import child_imports
from probes.provenance.code import DIFF_NAME, code, in_unicode, without_home
from probes.provenance.code_files import are_kept, class_files, code_reads, module_files, module_records, sources
from probes.provenance.environment import environment, generators, machine
from probes.provenance.packages import packages
from probes.provenance.redact import redacted, redacted_table
from probes.provenance.weights_record import ModuleTree, devices_of, model_record
from probes.run_directory.create import where_started
from probes.run_directory.manifest import CodeRecord, FileRecord, Identity, Manifest, PluginRecord, SpecRecord, identity
from probes.spec.load import LoadedSpec


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
        started=_now(),
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


class Surroundings:
    """The environment of a run, at its first step and at the end of each epoch, compared with its manifest.

    The manifest is written before the first step. A program that calls `attach` early may set more after it, and autocast is on only
    within a step.

    Args:
        manifest: of this start, as plain data; if it is empty, nothing is compared.
        trees: the models' module trees by their names in the spec.

    Attributes:
        waiting: whether the first step is still to come.
        unknown: files of this epoch's modules that could not be read or kept, and why.
    """

    def __init__(self, manifest: Mapping[str, Any], trees: Mapping[str, ModuleTree]) -> None:
        self._stated: dict[str, Any] = dict(manifest.get("environment") or {})
        self._known = {one["name"] for one in (manifest.get("code") or {}).get("modules") or ()}
        self._trees = trees
        self._first: dict[str, Any] = {}
        self._began = ""
        self.unknown: dict[str, str] = {}
        self._modules: frozenset[str] = frozenset()
        self._files: dict[str, Path] = {}
        self._imported: dict[str, str] = {}
        self._kept: set[tuple[str, str]] = set()
        self._keeps = are_kept() and manifest.get("rank") == 0
        self._here = where_started()  # the program may change its directory later
        self._forked = child_imports.open() if self._stated else 0
        self.waiting = bool(self._stated)

    def begin_epoch(self) -> None:
        """Record the time."""
        self._began = _now()

    def first_step(self) -> None:
        """Read the environment during the first call of the first step."""
        self.waiting = False
        self._first = self._changes()

    def end_epoch(self) -> dict[str, Any]:
        """Data for the closing record of an epoch: times, differences from the manifest at the first step and now, later modules."""
        self.unknown = {}
        found: dict[str, Any] = {"started": self._began, "ended": _now()}
        if self._stated:
            found["environment"] = {"first_step": self._first, "end": self._changes()}
            found["imported"] = self._new_modules()
        return found

    def late_sources(self) -> bytes:
        """A zip file with the sources of modules that were imported since the last one was made; empty if there are none.

        Call it after `end_epoch`, whose digests are of the same files.
        """
        fresh = {name: path for name, path in self._files.items() if (name, self._imported.get(name, "")) not in self._kept}
        if not fresh or not self._keeps:
            return b""
        self._kept |= {(name, self._imported.get(name, "")) for name in fresh}
        return sources(fresh, self.unknown)

    def _changes(self) -> dict[str, Any]:
        """The settings that differ from the manifest, with their values."""
        now = environment(devices_of(self._trees), int(self._stated.get("world", 1)), {}).model_dump(mode="json")
        return {name: value for name, value in now.items() if self._stated.get(name, value) != value}

    def _new_modules(self) -> dict[str, str]:
        """SHA-256 of every file of a module that was imported since the manifest was written, by the name of the file."""
        known = frozenset(sys.modules) | code_reads.files
        elsewhere = child_imports.noted(self._forked)
        if known != self._modules or elsewhere:
            self._modules = known
            classes = {type(node.module) for tree in self._trees.values() for node in tree.nodes.values()}
            found = module_files(None, more=elsewhere | code_reads.files | class_files(classes), here=self._here)
            self._files = {name: path for name, path in found.items() if name not in self._known}
            self._imported = {one.name: one.sha256 for one in module_records(self._files, self.unknown)}
        return self._imported


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
