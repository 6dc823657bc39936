"""Check the manifests in a run directory, one for each start of each rank, and the texts that they name."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from probes.errors import FileRefused, StorageError
from probes.plain_file import plain_object, read_plain
from probes.proof.finding import Finding
from probes.run_directory.file_name import attempt_of_manifest, manifest_files, manifest_name
from probes.run_directory.launch.absent import by_ranks, without
from probes.run_directory.launch.end_note import Ended, ended_ranks
from probes.run_directory.launch.launch_file import launch_name
from probes.run_directory.ledger import current
from probes.run_directory.ledger_lines import LedgerLine
from probes.run_directory.manifest import Manifest, newer_format, written

MOST_NAMED = 16


class StartCheck:
    """Reads the manifests of a run and collects findings.

    Attributes:
        manifests: name of the file -> content; empty if it is not a JSON object.
        named: name of the manifest -> names of the other files whose digests it states, and that have them.
        findings: what is wrong.
    """

    def __init__(self, directory: Path, entries: Sequence[LedgerLine], worlds: Mapping[int, int]) -> None:
        self._directory = directory
        self.findings: list[Finding] = []
        self.named: dict[str, set[str]] = defaultdict(set)
        found = [path.name for path in manifest_files(directory)]
        # In a launch that was killed early, rank 0 may have joined only in a later start.
        names = (
            found
            if worlds and found and not any(entry.attempt == 1 and not entry.rank for entry in entries)
            else sorted({"run.json", *found})
        )
        of_zero = [name for name in names if ".rank-" not in name]
        self._of_spec = min(of_zero, key=attempt_of_manifest, default="")  # the start that wrote the spec
        self.manifests: dict[str, dict[str, Any]] = {name: self._read(name) for name in names}
        first = self.manifests.get("run.json") or next(iter(self.manifests.values()))
        for name in names if first else ():
            if _run_of(self.manifests[name]) != _run_of(first):
                self._find("manifest-edited", name, "is the manifest of another run than `run.json`")
        self.findings += _launches(self.manifests, entries, worlds, ended_ranks(directory, entries))

    def _read(self, name: str) -> dict[str, Any]:
        path = self._directory / name
        if not path.exists() and not path.is_symlink():
            self._find("manifest-edited", name, "the manifest is missing")
            return {}
        try:
            text = read_plain(path)
            found = plain_object(text)
        except FileRefused as refused:
            self._find("manifest-edited", name, f"is not a manifest: {refused.message}")
            return {}
        except StorageError as error:
            self._find("unreadable", name, str(error))
            return {}
        except ValueError:
            self._find("manifest-edited", name, "does not fit the schema: it is not a JSON object")
            return {}
        newer = newer_format(found)
        if newer:
            self._find("newer-format", name, f"has {newer}")
            return found
        try:
            manifest = Manifest.model_validate_json(text)
        except ValidationError as error:
            self._find("manifest-edited", name, f"does not fit the schema: {error.errors()[0]['msg']}")
            return found
        if written(json.loads(text)).encode() != text:
            self._find("manifest-edited", name, "is not in the canonical form of a manifest")
        self._texts(name, manifest)
        return found

    def _texts(self, name: str, manifest: Manifest) -> None:
        """Check the files that a manifest names."""
        self._check_hash(name, "spec.yaml", manifest.spec.sha256, "spec-edited" if name == self._of_spec else "")
        git, sources = manifest.code.git, manifest.code.sources
        if git is not None and git.diff is not None and "code.git.diff" not in manifest.unknown and not manifest.rank:
            self._check_hash(name, git.diff.name, git.diff.sha256, "diff-edited")
        if sources is not None:
            self._check_hash(name, sources.name, sources.sha256, "sources-edited")
        launch = launch_name(attempt_of_manifest(name))
        if manifest.launch is not None or (self._directory / launch).exists():
            self._check_hash(name, launch, manifest.launch or "", "launch-differs")

    def _check_hash(self, manifest: str, name: str, digest: str, code: str) -> None:
        """Report a file that differs from the one in a manifest; without a code, another manifest decides."""
        wrong = other_file(self._directory, name, digest)
        if not wrong:
            self.named[manifest].add(name)
        elif code:
            self._find(code, name, wrong)

    def _find(self, code: str, file: str, message: str) -> None:
        self.findings.append(Finding(code, file, message))


def other_file(directory: Path, name: str, digest: str) -> str:
    """The reason why a file of a run directory is not the one in a record; an empty text if it is.

    Args:
        directory: the run directory.
        name: as the record states it.
        digest: SHA-256, as the record states it.
    """
    path = directory / name
    if path.parent != directory:
        return "is the name of a file outside the run directory"
    try:
        if not path.is_file():
            return "is missing"
        found = hashlib.sha256(read_plain(path)).hexdigest()
    except (FileRefused, StorageError) as error:
        return str(error)
    except OSError as error:  # a name that no file can have
        return f"cannot be read: {error.strerror}"
    return "" if found == digest else "is not the one that the run names"


def _run_of(manifest: dict[str, Any]) -> list[object]:
    """The facts that the manifests of all ranks and attempts share."""
    spec = manifest.get("spec")
    return [manifest.get("format"), manifest.get("run_id"), spec.get("identity") if isinstance(spec, dict) else None]


def _launches(
    manifests: dict[str, dict[str, Any]], entries: Sequence[LedgerLine], launched: Mapping[int, int], ended: Ended
) -> Iterator[Finding]:
    """Check that the ranks of manifests, launch files and ledgers fit the number of processes."""
    worlds: dict[int, int] = {}
    for name, manifest in sorted(manifests.items()):
        attempt, rank, world = attempt_of_manifest(name), manifest.get("rank"), _world(manifest)
        if not manifest or world is None:
            continue
        if not isinstance(rank, int) or manifest_name(attempt, rank) != name:
            yield Finding("launch-differs", name, f"states rank {rank}, which is not the one of its name")
        elif world != worlds.setdefault(attempt, world) or not 0 <= rank < world:
            yield Finding("launch-differs", name, f"rank {rank} of {world} processes does not fit the manifests of the same start")
    counting = {entry.attempt for entry in current(entries, launched).values()}
    for attempt, world in sorted(worlds.items()):
        if world != launched.get(attempt, world):
            yield Finding("launch-differs", launch_name(attempt), f"states {launched[attempt]} processes; the manifests state {world}")
        named = range(min(world, len(manifests) + len(ended) + 1))
        missing = [rank for rank in named if manifest_name(attempt, rank) not in manifests and ended.get((attempt, rank)) != -1]
        if missing and (attempt in counting or not launched):  # else a start was killed before all ranks had joined
            yield Finding("launch-differs", manifest_name(attempt, missing[0]), f"is missing: the launch had {world} processes")
    for entry in entries:
        world = worlds.get(entry.attempt)
        if world is not None and ((".rank-" in entry.file) != (world > 1) or entry.rank >= world):
            yield Finding("launch-differs", entry.file, f"is not the name of a file of a launch with {world} processes")
    yield from _absent(entries, worlds, launched, ended)


def _absent(entries: Sequence[LedgerLine], worlds: Mapping[int, int], launched: Mapping[int, int], ended: Ended) -> Iterator[Finding]:
    """Complete epochs of which some ranks have no file, one finding for each set of ranks."""
    epochs: dict[int, dict[int, LedgerLine]] = {}
    for entry in current(entries, launched).values():
        before = epochs.setdefault(entry.epoch, {}).get(entry.rank)
        if before is None or (before.segment or 0) < (entry.segment or 0):
            epochs[entry.epoch][entry.rank] = entry
    found: dict[int, tuple[int, ...]] = {}
    for epoch, ranks in epochs.items():
        world = max((worlds.get(entry.attempt, 1) for entry in ranks.values()), default=1)
        attempt = max(entry.attempt for entry in ranks.values())
        must = (rank for rank in range(world) if rank not in ranks and ended.get((attempt, rank), epoch) >= epoch)
        absent = tuple(islice(must, MOST_NAMED))
        if absent and all(entry.complete for entry in ranks.values()):
            found[epoch] = absent
    for absent, lacking in by_ranks(found).items():
        yield Finding("launch-differs", f"ledger.rank-{absent[0]:04d}.jsonl", without(absent, lacking))


def _world(manifest: dict[str, Any]) -> int | None:
    environment = manifest.get("environment")
    world = environment.get("world") if isinstance(environment, dict) else None
    return world if isinstance(world, int) and world > 0 else None
