"""The environment of a run, checked again while it continues: settings that the program changed, and modules that it imported since."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probes.provenance.child_processes import child_imports
from probes.provenance.code_files import are_kept, class_files, code_reads, module_files, module_records, sources
from probes.provenance.environment import environment
from probes.provenance.weights.weights_record import ModuleTree, devices_of
from probes.run_directory.create import where_started


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
