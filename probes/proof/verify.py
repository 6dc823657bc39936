"""Verifying a run or one of its files: whether everything is as it was sealed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from probes.capture_file.missing_values import MissingValue, in_words
from probes.errors import StorageError, UsageError
from probes.proof.file_hash import Hashes, hashes, prefix_hex
from probes.proof.finding import CheckedFile, Finding, Verdict
from probes.proof.ledgers import LedgerCheck, check_anchor, check_ledger, head_of
from probes.proof.verify_file import FileVerification, verify_file
from probes.run_directory.file_name import CONTINUED, ledger_files, manifest_name
from probes.run_directory.ledger import LedgerLine, current
from probes.run_directory.listing import is_run, newest_run
from probes.run_directory.manifest import Manifest, written

FACTS = ("epoch", "attempt", "rank", "captures_root", "epoch_root", "reason")


def verify(path: str | Path, *, anchor: str | None = None, sha256: bool = False) -> Verdict:
    """Check every byte of a run, or of one file, against its digests, the ledger and the manifest.

    Needs no torch and no network, writes nothing, and trusts nothing in the files.

    Args:
        path: a run directory, a directory of runs (then its newest one), or one file; a file is checked against the
            ledger beside it, where there is one.
        anchor: the head of the ledger that was printed at the end of the run, or at least its first 8 digits.
        sha256: take the SHA-256 of the files too.

    Returns:
        What was found; nothing is printed.

    Raises:
        StorageError: there is nothing there.
        UsageError: an anchor is given for a file that has no ledger, or is too short.
    """
    found = Path(path)
    if not found.exists():
        raise StorageError(f'"{found}" does not exist; `probes ls` lists the runs under runs/')
    if found.is_dir() and not is_run(found):
        found = newest_run(found)
    directory = found if found.is_dir() else found.parent
    ledgers = tuple(check_ledger(ledger) for ledger in ledger_files(directory))
    if anchor is not None and (not ledgers or len(anchor) < 8):
        raise UsageError("--anchor takes at least 8 digits of a ledger's head, and needs a run directory with a ledger")
    with closing(_Verification(directory, ledgers, sha256)) as work:
        return work.run(found, anchor)


class _Verification:
    """One verification; files are hashed as a whole by a second thread while their content is checked."""

    def __init__(self, directory: Path, ledgers: tuple[LedgerCheck, ...], sha256: bool) -> None:
        self._directory, self._ledgers, self._sha256 = directory, ledgers, sha256
        self._entries = [entry for ledger in ledgers for entry in ledger.entries]
        self._findings: list[Finding] = []
        self._manifests: dict[str, dict[str, Any]] = {}
        self._thread = ThreadPoolExecutor(1)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def run(self, path: Path, anchor: str | None) -> Verdict:
        single = path.is_file()
        if not single:
            self._findings += [finding for ledger in self._ledgers for finding in ledger.findings]
            self._attempts()
        if anchor is not None:
            self._findings += check_anchor(self._ledgers, anchor)
        if not single:
            self._read_manifests()
        names = [path.name] if single else self._names()
        checked = [self._file(name) for name in names]
        if not names and not self._findings:
            self._find("nothing", self._directory.name, "no file was sealed")
        run_id = self._manifests.get("run.json", {}).get("run_id") or next((one.run_id for one in checked if one.run_id), "")
        return Verdict(
            path=str(path),
            run_id=str(run_id),
            findings=tuple(self._findings),
            files=tuple(one.checked for one in checked),
            head=head_of(self._ledgers),
            anchored=anchor is not None and not any(finding.code == "ledger-rolled-back" for finding in self._findings),
        )

    def _names(self) -> list[str]:
        """Sealed files to verify; what is missing, unlisted or not sealed yet is noted."""
        there = {path.name for path in self._directory.glob("epoch-*.h5")}
        listed = {entry.file for entry in self._entries}
        if there and not self._ledgers:
            self._find("ledger-missing", "ledger.jsonl", f"there are {len(there)} sealed files and no ledger")
        for name in sorted(listed - there):
            self._find("file-missing", name, "the ledger lists it, but the file is missing")
        if self._ledgers:
            for name in sorted(there - listed):
                self._find("file-unlisted", name, "no line of the ledger lists it")
        for path in sorted(self._directory.glob("epoch-*.journal")):
            self._find("unsealed", path.name, "its epoch is not sealed; `probes recover` seals the epochs of a run that died")
        return sorted(there)

    def _attempts(self) -> None:
        counting = {entry.file for entry in current(self._entries).values()}
        self._segments([entry for entry in self._entries if entry.file in counting and entry.segment])
        seen: set[str] = set()
        for entry in self._entries:
            if entry.file in seen:
                self._find("ledger-edited", entry.file, "two lines of the ledger list it")
            elif entry.file not in counting:
                self._find("superseded", entry.file, "a later attempt replaces it")
            seen.add(entry.file)

    def _segments(self, entries: list[LedgerLine]) -> None:
        """Note epochs that do not have every segment."""
        epochs: dict[tuple[int, int], dict[int, LedgerLine]] = {}
        for entry in entries:
            epochs.setdefault((entry.epoch, entry.rank), {})[entry.segment or 0] = entry
        for segments in epochs.values():
            last = segments[max(segments)]
            for missing in sorted({*range(1, max(segments))} - {*segments}):
                self._find("file-missing", last.file, f"its epoch has no segment {missing}")
            if last.reason == CONTINUED:
                self._find("incomplete", last.file, "the epoch is incomplete: its next segment is missing")

    def _read_manifests(self) -> None:
        """Read the manifest of every start; what does not fit one is noted."""
        names = sorted({"run.json", *(path.name for path in self._directory.glob("run.*json"))})
        for name in names:
            self._manifests[name] = self._manifest(name)
        first = self._manifests["run.json"]
        for name in names[1:] if first else ():
            if _run_of(self._manifests[name]) != _run_of(first):
                self._find("manifest-edited", name, "is the manifest of another run than `run.json`")

    def _manifest(self, name: str) -> dict[str, Any]:
        path = self._directory / name
        if not path.is_file():
            self._find("manifest-edited", name, "the manifest is missing")
            return {}
        text = path.read_bytes()
        try:
            manifest = Manifest.model_validate_json(text)
        except ValidationError as error:
            self._find("manifest-edited", name, f"does not fit the schema: {error.errors()[0]['msg']}")
            return _object(text)
        if written(json.loads(text)).encode() != text:
            self._find("manifest-edited", name, "is not written the way a manifest is")
        if name == "run.json":
            self._check_hash("spec.yaml", manifest.spec.sha256, "spec-edited")
        git = manifest.code.git
        if git is not None and git.diff is not None and "code.git.diff" not in manifest.unknown and not manifest.rank:
            self._check_hash(git.diff.name, git.diff.sha256, "diff-edited")
        return _object(text)

    def _check_hash(self, name: str, digest: str, code: str) -> None:
        path = self._directory / name
        if not path.is_file():
            self._find(code, name, "is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            self._find(code, name, "is not the one that the manifest names")

    def _file(self, name: str) -> _File:
        path = self._directory / name
        entry = next((entry for entry in reversed(self._entries) if entry.file == name), None)
        hashing = self._thread.submit(hashes, path, self._sha256) if entry or self._sha256 else None
        inspected = verify_file(path, entry.captures if entry else None)
        found = _result(hashing)
        mine = list(inspected.findings)
        mine += self._origin(entry, inspected, found.blake3)
        if entry is not None:
            mine = list(self._against(entry, path, inspected, found.blake3, mine))
        self._findings += mine
        self._findings += _notes(inspected)
        checked = CheckedFile(
            file=name,
            bytes=path.stat().st_size,
            captures=inspected.captures,
            captures_root=inspected.captures_root,
            epoch_root=inspected.epoch_root,
            file_blake3=found.blake3,
            file_sha256=found.sha256,
            ok=all(one.note for one in mine),
        )
        return _File(checked, str(inspected.attributes.get("run_id", "")))

    def _against(self, entry: LedgerLine, path: Path, found: FileVerification, digest: str, mine: list[Finding]) -> Iterator[Finding]:
        """A file against its line in the ledger; what is plainer than what was found inside takes its place."""
        size = path.stat().st_size
        other = next((one for one in self._entries if one.file_blake3 == digest and one.file != entry.file), None)
        if other is not None:
            yield Finding("files-swapped", entry.file, f'holds what the ledger lists as "{other.file}"')
            return
        if size < entry.bytes and digest != entry.file_blake3:
            yield Finding("truncated", entry.file, f"has {size} of {entry.bytes} bytes; epoch root was {entry.epoch_root[:12]}")
            return
        if size > entry.bytes and prefix_hex(path, entry.bytes) == entry.file_blake3:
            yield Finding("trailing-bytes", entry.file, f"has {size - entry.bytes} bytes more than when it was sealed")
            return
        yield from mine
        if digest == entry.file_blake3:
            yield from self._line(entry, found)
        elif not mine:
            yield Finding("file-changed", entry.file, "captures and texts are intact, but other bytes changed since it was sealed")

    def _line(self, entry: LedgerLine, found: FileVerification) -> Iterator[Finding]:
        """A line of the ledger against a file whose hash it has: where they differ, the line was edited."""
        facts = {name: found.attributes.get(name) for name in FACTS}
        facts |= {"captures": found.captures, "complete": bool(found.attributes.get("complete"))}
        facts |= {"segment": found.attributes.get("segment") or None, "bytes": (self._directory / entry.file).stat().st_size}
        wrong = sorted(name for name, value in facts.items() if getattr(entry, name) != value)
        earlier = {one.file for one in self._entries if (one.epoch, one.rank) == (entry.epoch, entry.rank) and one.attempt < entry.attempt}
        if entry.supersedes is not None and entry.supersedes not in earlier:
            wrong.append("supersedes")
        if wrong:
            yield Finding("ledger-edited", entry.file, f"its line in the ledger states another {' and '.join(wrong)} than the file has")

    def _origin(self, entry: LedgerLine | None, found: FileVerification, digest: str) -> list[Finding]:
        """Whether the manifest in a file is that of the start which wrote it."""
        if not self._manifests or not found.manifest:
            return []
        name = manifest_name(int(found.attributes.get("attempt") or 1), int(found.attributes.get("rank") or 0))
        if self._manifests.get(name) == found.manifest:
            return []
        if entry is None or digest != entry.file_blake3:
            return [Finding("manifest-edited", found.name, f"the manifest in it is not `{name}`")]
        if not any(one.code == "manifest-edited" and one.file == name for one in self._findings):
            words = f'is not the manifest in "{found.name}"' if name in self._manifests else "the manifest is missing"
            self._find("manifest-edited", name, words)
        return []

    def _find(self, code: str, file: str, message: str) -> None:
        self._findings.append(Finding(code, file, message))


class _File(NamedTuple):
    checked: CheckedFile
    run_id: str


def _run_of(manifest: dict[str, Any]) -> list[object]:
    """What the manifests of all ranks and attempts share."""
    spec = manifest.get("spec")
    return [manifest.get("format"), manifest.get("run_id"), spec.get("identity") if isinstance(spec, dict) else None]


def _notes(found: FileVerification) -> Iterator[Finding]:
    """What is no damage, and worth knowing."""
    if found.attributes and not found.attributes.get("complete") and found.attributes.get("reason") != CONTINUED:
        yield Finding("incomplete", found.name, f"the epoch is incomplete: {found.attributes.get('reason') or 'no reason given'}")
    known = {(key.probe, key.target, key.leaf, reason) for key, reason, _ in found.gaps}
    gaps = [MissingValue(key.probe, key.target, key.leaf, reason, count) for key, reason, count in found.gaps]
    rest = [one for one in found.missing if (one.probe, one.target, one.leaf, one.reason) not in known]
    for line in in_words([*gaps, *rest]):
        yield Finding("gaps", found.name, f"missing: {line}")


def _result(hashing: Future[Hashes] | None) -> Hashes:
    return hashing.result() if hashing else Hashes("", "")


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
