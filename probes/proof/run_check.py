"""Check one run directory, or one file of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from probes.capture_file.closing import MissingValue, missing_in_words
from probes.capture_file.outline import stated
from probes.digest import blake3_hex, canonical
from probes.error_codes import PROOF
from probes.errors import FileRefused, ProbesError
from probes.plain_file import refuse_holes
from probes.progress.loops import with_progress
from probes.proof.anchor import AnchorCheck, check_anchors, covered
from probes.proof.file_hash import Hashes, hashes, prefix_hex
from probes.proof.finding import CheckedFile, Finding, Verdict
from probes.proof.manifest_check import CheckedOrigins
from probes.proof.start_check import StartCheck, other_file
from probes.proof.verify_file import FileVerification, verify_file
from probes.run_directory.file_name import CONTINUED, manifest_name
from probes.run_directory.launch.launch_file import worlds
from probes.run_directory.ledger import current
from probes.run_directory.ledger_lines import EARLIER, LedgerLine, breaches, head_of, read_ledgers, series_rows
from probes.run_directory.listing import Directory

FACTS = ("epoch", "attempt", "rank", "captures_root", "epoch_root", "reason")
MOST_NAMED = 16
MUCH_LONGER = 64 << 20


class RunCheck:
    """One verification; a second thread hashes whole files while their content is checked.

    Attributes:
        has_ledger: whether there is a ledger.
        has_weights: whether a file states the weights at the end of its epoch.
    """

    def __init__(self, path: Path, sha256: bool) -> None:
        self._path, self._sha256 = path, sha256
        self._directory = path if path.is_dir() else path.parent
        self._ledgers = read_ledgers(self._directory)
        self.has_ledger = bool(self._ledgers)
        self.has_weights = False
        self._entries = [entry for ledger in self._ledgers for entry in ledger.entries]
        self._lines = {entry.file: entry for entry in self._entries}
        sound = [ledger for ledger in self._ledgers if not ledger.breaches]
        self._rows = {entry.file: series_rows(ledger.entries, entry) for ledger in sound for entry in ledger.entries}
        self._sizes = {entry.bytes for entry in self._entries}
        self._digests = {entry.file_blake3: entry.file for entry in reversed(self._entries)}
        self._findings: list[Finding] = []
        self._manifests: dict[str, dict[str, Any]] = {}
        self._manifest_digests: dict[str, str] = {}
        self._origins = CheckedOrigins()
        self._worlds = self._read_worlds()
        self._named: Mapping[str, set[str]] = {}
        self._copied: set[str] = set()
        self._kept: set[str] = set()
        self._thread = ThreadPoolExecutor(1)

    def _read_worlds(self) -> dict[int, int]:
        try:
            return worlds(self._directory)
        except FileRefused as refused:
            self._find(refused.code, self._path.name, refused.message)
            return {}

    def close(self) -> None:
        """End the second thread."""
        self._thread.shutdown(cancel_futures=True)

    def verdict(self, anchors: Sequence[str]) -> Verdict:
        """Check everything, including the anchors that `anchor.checked` returned."""
        single = not self._path.is_dir()
        names = self._one_name() if single else self._every_name()
        anchored = check_anchors(self._ledgers, anchors, self._worlds)
        self._findings += anchored.findings
        if anchored.lines:
            self._continued(anchored)
        if anchors and single and anchored.lines and not anchored.covers(self._ledgers, self._path.name):
            self._find("anchor-uncovered", self._path.name, "no anchor covers the line that lists it")
        checked = [self._file(name) for name in with_progress(names, "file")]
        if not single:
            self._uncovered()
        if not names and all(finding.note for finding in self._findings):
            self._find("nothing", self._directory.name, "no file was sealed")
        run_id = self._manifests.get("run.json", {}).get("run_id") or next((one.run_id for one in checked if one.run_id), "")
        return Verdict(
            path=str(self._path),
            run_id=str(run_id),
            findings=tuple(self._findings),
            files=tuple(one.checked for one in checked),
            head=head_of(self._ledgers),
            anchored=anchored.whole if not single else anchored.covers(self._ledgers, self._path.name),
            alone=single and not self.has_ledger,
        )

    def _every_name(self) -> list[str]:
        """The sealed files to verify; checks everything around them first."""
        self._findings += [Finding(*breach) for breach in breaches(self._ledgers)]
        for ledger in self._ledgers:
            if ledger.torn:
                self._find("ledger-torn", ledger.name, f"the last {ledger.torn} bytes are not a complete line")
        self._attempts()
        starts = StartCheck(self._directory, self._entries, self._worlds)
        self._manifests, self._named = starts.manifests, starts.named
        self._findings += starts.findings
        return self._names()

    def _one_name(self) -> list[str]:
        """The single file to verify; checks that the ledger next to it lists the file once, in an unbroken chain."""
        name = self._path.name
        if self.has_ledger:
            holding = {ledger.name for ledger in self._ledgers for entry in ledger.entries if entry.file == name}
            self._findings += [
                Finding(*breach) for breach in breaches(self._ledgers) if breach.file in {name, *(holding or self._all_names())}
            ]
            if not holding:
                self._find("file-unlisted", name, "no line of the ledger next to it lists it")
            elif name not in self._shown():
                self._find("superseded", name, "readers show another attempt at its epoch")
        return [name]

    def _uncovered(self) -> None:
        """Report every file of the directory that no digest covers, neither in a ledger nor in a sealed file."""
        covered = self._all_names() | self._lines.keys() | self._copied | self._kept
        covered |= {name for manifest in self._copied for name in self._named.get(manifest, ())}
        with os.scandir(self._directory) as entries:
            names = sorted(one.name for one in entries if not one.is_dir(follow_symlinks=False))
        said = {finding.file for finding in self._findings if not finding.note}
        for name in names:
            if name in self._manifests and name not in covered:
                self._find("manifest-uncovered", name, "no file has a copy of it, because its start sealed none; no digest covers it")
            elif name not in covered | said:
                self._find("uncovered", name, "no digest covers it, so anyone could have written it")

    def _all_names(self) -> set[str]:
        return {ledger.name for ledger in self._ledgers}

    def _names(self) -> list[str]:
        """The sealed files to verify; reports files that are missing, unlisted or not sealed yet."""
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
            self._find("unsealed", path.name, "its epoch is not sealed; `probes recover` seals the epochs of a killed run")
        return sorted(there)

    def _attempts(self) -> None:
        shown = self._shown()
        self._segments([entry for entry in self._entries if entry.file in shown and entry.segment])
        for entry in self._entries:
            if entry.file not in shown:
                self._find("superseded", entry.file, "readers show another attempt at its epoch")

    def _continued(self, anchored: AnchorCheck) -> None:
        """Report files that anchors cover and of which readers take later steps from an attempt that no anchor covers."""
        kept = {one.file: one for one in covered(self._ledgers, anchored.lines)}
        if len(kept) == len(self._entries):
            return
        shown = self._shown()
        later = {(one.epoch, one.rank) for one in self._entries if one.file in shown and one.file not in kept}
        for entry in kept.values():
            before = shown.get(entry.file)
            if before is not None and (entry.epoch, entry.rank) in later:
                words = f"its training steps from {before} on are read from a later attempt, which is not anchored"
                self._find("anchor-resumed", entry.file, f"the anchor covers it as an epoch that was not complete; {words}")

    def _shown(self) -> dict[str, int | None]:
        """The files that readers show, and the training step before which, if a later attempt continues their epoch.

        Where they cannot read the run, those that count by the ledgers alone.
        """
        counting: dict[str, int | None] = {entry.file: None for entry in current(self._entries, self._worlds).values()}
        if len(counting) == len(self._entries):
            return counting
        try:
            return {one.name: one.before for one in Directory(self._directory).current}
        except (ProbesError, OSError):
            return counting

    def _segments(self, entries: list[LedgerLine]) -> None:
        """Report epochs with missing segments."""
        epochs: dict[tuple[int, int, int], dict[int, LedgerLine]] = {}
        for entry in entries:
            epochs.setdefault((entry.epoch, entry.rank, entry.attempt), {})[entry.segment or 0] = entry
        for segments in epochs.values():
            last = segments[max(segments)]
            missing = islice((number for number in range(1, max(segments)) if number not in segments), MOST_NAMED)
            for number in missing:
                self._find("file-missing", last.file, f"its epoch has no segment {number}")
            if last.reason == CONTINUED:
                self._find("incomplete", last.file, "the epoch is incomplete: its next segment is missing")

    def _file(self, name: str) -> _File:
        """Check a file; that it cannot be read is a finding, as damage is."""
        try:
            return self._read_file(name)
        except OSError as error:
            self._find("unreadable", name, f"cannot be read: {error.strerror}" if error.strerror else str(error))
            return _File(CheckedFile(name, 0, ok=False), "")

    def _read_file(self, name: str) -> _File:
        path = self._directory / name
        if not path.is_file() or (path.is_symlink() and self.has_ledger):  # a user may name one file by a link
            self._find("not-regular", name, "is a link" if path.is_symlink() else "is not a regular file")
            return _File(CheckedFile(name, 0, ok=False), "")
        entry = self._lines.get(name)
        size = path.stat().st_size
        has_digest = size in self._sizes  # else it is none of the files that a ledger lists
        hashed = min(size, entry.bytes) if entry else size if has_digest or self._sha256 else 0
        unread = _holes(path, hashed) or (_longer(entry, path, size) if entry else None)
        if unread is not None:
            self._findings.append(unread)
            return _File(CheckedFile(name, size, ok=False), "")
        hashing = self._thread.submit(hashes, path, self._sha256) if has_digest or self._sha256 else None
        inspected = verify_file(path, entry.captures if entry else None, self._origins)
        found = _result(hashing)
        self.has_weights = self.has_weights or inspected.has_weights
        mine = self._origin(entry, inspected, found.blake3)
        mine = [*(one for one in inspected.findings if one.code != "file-root" or not mine), *mine]  # the manifest has the value
        if entry is not None:
            mine = list(self._against(entry, path, inspected, found.blake3, mine))
        self._findings += mine
        self._findings += _notes(inspected)
        if inspected.sources is not None and self._path.is_dir():
            wrong = other_file(self._directory, *inspected.sources)
            if wrong:
                self._find("sources-edited", inspected.sources[0], wrong)
            else:
                self._kept.add(inspected.sources[0])
        if entry is None and inspected.attributes.get("proof") is None and inspected.attributes:
            self._find("proof-v1", name, PROOF["proof-v1"].meaning.removeprefix("note: "))
        checked = CheckedFile(
            file=name,
            bytes=size,
            captures=inspected.captures,
            captures_root=inspected.captures_root,
            epoch_root=inspected.epoch_root,
            file_blake3=found.blake3,
            file_sha256=found.sha256,
            ok=all(one.note for one in mine),
        )
        return _File(checked, str(inspected.attributes.get("run_id", "")))

    def _against(self, entry: LedgerLine, path: Path, found: FileVerification, digest: str, mine: list[Finding]) -> Iterator[Finding]:
        """Check a file against its line in the ledger; a more specific finding replaces the findings inside the file."""
        size = path.stat().st_size
        other = self._digests.get(digest, entry.file)
        if other != entry.file:
            yield Finding("files-swapped", entry.file, f'holds what the ledger lists as "{other}"')
            return
        if size < entry.bytes and digest != entry.file_blake3:
            yield Finding("truncated", entry.file, f"has {size} of {entry.bytes} bytes; epoch root was {entry.epoch_root[:12]}")
            return
        yield from mine
        if digest == entry.file_blake3:
            yield from self._line(entry, found)
        elif not mine:
            yield Finding("file-changed", entry.file, "captures and texts are intact, but other bytes changed since it was sealed")

    def _line(self, entry: LedgerLine, found: FileVerification) -> Iterator[Finding]:
        """Check a ledger line against a file with its hash: a difference means that the line was edited."""
        facts = {name: found.attributes.get(name) for name in FACTS}
        facts |= {"complete": bool(found.attributes.get("complete")), "segment": found.attributes.get("segment") or None}
        facts |= {"bytes": (self._directory / entry.file).stat().st_size}
        if not found.unread:
            facts["captures"] = found.captures
        if not found.attributes:
            return  # nothing of it can be read
        wrong = sorted(name for name, value in facts.items() if getattr(entry, name) != value)
        if not found.unread and entry.format != EARLIER and entry.file in self._rows:
            wrong += self._outline(entry, found)
        before = self._lines.get(entry.supersedes or "")
        if entry.supersedes is not None and (before is None or not _replaces(entry, before)):
            wrong.append("supersedes")
        if wrong:
            yield Finding("ledger-edited", entry.file, f"its line in the ledger states another {' and '.join(wrong)} than the file has")

    def _outline(self, entry: LedgerLine, found: FileVerification) -> list[str]:
        """Check the series and the closing record in a line against those of the file."""
        rows = self._rows[entry.file]
        same = rows is None or [row.model_dump() for row in rows] == stated(found.series, entry.epoch)
        return [*([] if same else ["series"]), *([] if entry.remarks == found.remarks else ["remarks"])]

    def _origin(self, entry: LedgerLine | None, found: FileVerification, digest: str) -> list[Finding]:
        """Check that the manifest in a file is that of the start which wrote it."""
        if not self._manifests or not found.manifest:
            return []
        name = manifest_name(int(found.attributes.get("attempt") or 1), int(found.attributes.get("rank") or 0))
        self._copied.add(name)
        if name in self._manifests and self._manifest_digest(name) == found.manifest_digest:
            return []
        if entry is None or digest != entry.file_blake3:
            return [Finding("manifest-edited", found.name, f"the manifest in it is not `{name}`")]
        if not any(one.code == "manifest-edited" and one.file == name for one in self._findings):
            words = f'is not the manifest in "{found.name}"' if name in self._manifests else "the manifest is missing"
            self._find("manifest-edited", name, words)
        return []

    def _manifest_digest(self, name: str) -> str:
        """BLAKE3 of the canonical JSON of a manifest file; comparing parsed data would not do, because `True == 1` in Python."""
        if name not in self._manifest_digests:
            self._manifest_digests[name] = blake3_hex(canonical(self._manifests[name]))
        return self._manifest_digests[name]

    def _find(self, code: str, file: str, message: str) -> None:
        self._findings.append(Finding(code, file, message))


class _File(NamedTuple):
    checked: CheckedFile
    run_id: str


def _holes(path: Path, count: int) -> Finding | None:
    """Whether a file consists almost only of holes, so that nobody would wait for its end."""
    try:
        refuse_holes(path, count)
    except FileRefused as refused:
        return Finding(refused.code, path.name, refused.message)
    return None


def _longer(entry: LedgerLine, path: Path, size: int) -> Finding | None:
    """The finding on a file that is longer than when it was sealed, perhaps too long to read."""
    if size > entry.bytes and prefix_hex(path, entry.bytes) == entry.file_blake3:
        return Finding("trailing-bytes", entry.file, f"has {size - entry.bytes} bytes more than when it was sealed")
    if size > 2 * entry.bytes + MUCH_LONGER:
        return Finding("file-changed", entry.file, f"has {size} bytes, and had {entry.bytes} when it was sealed; its content was not read")
    return None


def _replaces(entry: LedgerLine, before: LedgerLine) -> bool:
    return (before.epoch, before.rank) == (entry.epoch, entry.rank) and before.attempt < entry.attempt


def _notes(found: FileVerification) -> Iterator[Finding]:
    """Notes: facts that are not damage."""
    if found.attributes and not found.attributes.get("complete") and found.attributes.get("reason") != CONTINUED:
        yield Finding("incomplete", found.name, f"the epoch is incomplete: {found.attributes.get('reason') or 'no reason given'}")
    known = {(key.probe, key.target, key.leaf, reason) for key, reason, _ in found.gaps}
    gaps = [MissingValue(key.probe, key.target, key.leaf, reason, count) for key, reason, count in found.gaps]
    rest = [one for one in found.missing if (one.probe, one.target, one.leaf, one.reason) not in known]
    for line in missing_in_words([*gaps, *rest]):
        yield Finding("gaps", found.name, f"missing: {line}")


def _result(hashing: Future[Hashes] | None) -> Hashes:
    return hashing.result() if hashing else Hashes("", "")
