"""Verify one sealed file from its own content: structure, captures, texts and roots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probes.capture_file.closing import MissingValue, has_remarks, missing_values
from probes.capture_file.hdf5_read import Hdf5Group
from probes.capture_file.outline import SeriesOutline
from probes.capture_file.read import LABELS, SealedFile, SealedPart, are_gaps
from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import outline_of_part, sizes
from probes.clock import SeriesKey
from probes.digest import ALGORITHM, FILE_ROOT, PROOF, blake3_hex, canonical_of, captures_root, root_of_epoch
from probes.errors import FileRefused
from probes.plain_file import plain_json
from probes.progress.loops import with_progress
from probes.proof.finding import CODES, Finding
from probes.proof.manifest_check import TEXTS, CheckedOrigins
from probes.proof.series_check import SeriesDigests, changes, stored_digest_changes
from probes.run_directory.launch.whole_weights import tables_of
from probes.signature import DTYPES

COLUMNS = ("epoch", "microstep", "call", "backward")
OF_LAYOUT = {"stacked": set[str](), "concatenated": {"row_size"}, "ragged": {"offset", "shape", "axis"}}
OF_IDS = {"step", "row_size", "sample_id", "sample"}
UNDESCRIBED = frozenset({"digest", "described"})
MOST_UNREAD = 1000  # limit of series of one file that cannot be read
UNKNOWN_STEP = np.uint64((1 << 64) - 1)

Gap = tuple[SeriesKey, str, int]


@dataclass
class FileVerification:
    """The results of the verification of one file.

    Attributes:
        name: of the file.
        findings: what is wrong with it.
        attributes: of its root; empty if it could not be opened.
        captures: how many captures it holds.
        captures_root: as computed; empty if it could not be.
        epoch_root: likewise.
        file_root: likewise; empty also where the file was sealed by `proof.v1`, which has none.
        manifest: the manifest in it, as plain data.
        manifest_digest: BLAKE3 of its canonical JSON.
        gaps: captures that were due and are missing, with reasons and counts.
        missing: what the counters of the bindings say is missing, in addition.
        sources: name and SHA-256 of the file next to it that its closing record names; None if absent.
        series: what each series is, as its clocks and shapes give it.
        remarks: whether the closing record has anything that a list of the run shows.
        has_weights: whether the closing record states the weights at the end of the epoch, tensor by tensor.
        unread: whether the file, or a series of it, cannot be read; `captures`, `series` and `remarks` then are of what was read.
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    captures: int = 0
    captures_root: str = ""
    epoch_root: str = ""
    file_root: str = ""
    manifest: dict[str, Any] = field(default_factory=dict)
    manifest_digest: str = ""
    gaps: list[Gap] = field(default_factory=list)
    missing: list[MissingValue] = field(default_factory=list)
    sources: tuple[str, str] | None = None
    series: list[SeriesOutline] = field(default_factory=list)
    remarks: bool = False
    has_weights: bool = False
    unread: bool = False


class _Checked(NamedTuple):
    """The result for a series whose bytes were all read; the series itself is closed, because thousands of open ones need much memory.

    Attributes:
        key: its name.
        dtype: its dtype.
        computed: its digest, computed.
        payloads: their place in the file, if they are in one piece.
        disagreeing: its digests, if those that the file states differ.
        columns: what is wrong with columns that the digests do not cover.
    """

    key: SeriesKey
    dtype: str
    computed: str
    payloads: range
    disagreeing: SeriesDigests | None
    columns: list[Finding]


def verify_file(path: Path, captures: int | None = None, origins: CheckedOrigins | None = None) -> FileVerification:
    """Verify a sealed file.

    Args:
        path: the file.
        captures: how many captures the ledger lists for it; None if there is no ledger.
        origins: what was found in the manifests of other files of the run.

    Returns:
        What was found. It is a finding, too, that the file cannot be opened.
    """
    found = FileVerification(path.name)
    check = _FileCheck(found, captures, origins or CheckedOrigins())
    try:
        file = SealedFile(path)
        found.attributes = file.attributes
        with file.root.checking():  # a changed byte may turn a type or a number into anything
            check.run(file)
    except FileRefused as refused:
        check.refused(refused)
    return found


class _FileCheck:
    """Fills a `FileVerification`, one area of the file after the other."""

    def __init__(self, found: FileVerification, listed: int | None, origins: CheckedOrigins) -> None:
        self._found, self._listed, self._origins = found, listed, origins
        self._unread = 0
        self._proof: str = PROOF

    def run(self, file: SealedFile) -> None:
        found = self._found
        if found.attributes.get("digest_algorithm") != ALGORITHM:
            named = found.attributes.get("digest_algorithm")
            self._find("algorithm", f"the file names the digest algorithm `{named}`; this format has `{ALGORITHM}`")
        self._proof = str(found.attributes.get("proof", "proof.v1"))
        if self._proof not in ("proof.v1", PROOF):
            self._find("newer-format", f"the file has the proof `{self._proof}`; this release knows `{PROOF}` and earlier ones")
        if not _is_described(found.attributes, self._proof):
            self._find("attribute-edited", "an attribute of the root group changed")
        behind = file.root.file_bytes.size - file.root.stated_bytes
        if behind > 0:  # they may be a hole of a TiB, so they are not read
            self._find("trailing-bytes", f"{behind} bytes follow the end of the HDF5 content")
        texts = {name: file.root.content(name) for name in TEXTS if name in file.root}
        found.manifest, found.manifest_digest = self._origins.manifest(texts.get("manifest"))
        closing, gaps = _object(texts.get("closing")), _gaps(texts.get("gaps"))
        found.gaps = gaps or []
        found.missing = missing_values(closing.get("accounts"))
        found.sources = _named(closing.get("sources"))
        found.has_weights = self._weights(closing)
        found.remarks = has_remarks(closing)
        own = set() if self._proof == "proof.v1" else {FILE_ROOT, "order"}
        self._members(file.root, set(file.root.names()), {"captures", *TEXTS, *own}, {"steps"})
        self._sample_ids(file)
        payloads = self._captures(file, gaps)
        found.findings += self._origins.findings(found.name, texts, found.attributes)
        complete = bool(found.attributes.get("complete"))
        found.epoch_root = root_of_epoch(found.manifest, closing, found.captures_root, found.captures, complete)
        if not found.findings and found.epoch_root != found.attributes.get("epoch_root"):
            self._find("epoch-root", "the origin or the end of the epoch differs from what the epoch root covers")
        if own and not found.findings:
            found.file_root = file.rest(payloads)
            if found.file_root.encode() != file.root.content(FILE_ROOT):
                self._find("file-root", "a text, a sample id, an attribute, a label or the structure changed; the captures did not")

    def _weights(self, closing: dict[str, Any]) -> bool:
        """Whether a closing record has tables of tensors; checks that its digest follows from them."""
        try:
            return tables_of(closing) is not None
        except ValueError as error:
            self._find("epoch-root", f"in the closing record, {error}")
            return False

    def refused(self, refused: FileRefused, series: SeriesKey | None = None) -> None:
        """Report that the file, or a series of it, cannot be read."""
        self._found.unread = True
        code = refused.code if refused.code in CODES else "damaged"
        self._find(code, str(refused).partition(": ")[2], series)

    def _members(self, group: Hdf5Group, names: set[str], needed: set[str], allowed: set[str]) -> bool:
        """Report objects that are missing from a group or were not sealed; return whether all required ones exist."""
        place = group.name.rstrip("/")
        for name in sorted(needed - names):
            self._find("missing-object", f"`{place}/{name}` is missing")
        for name in sorted(names - needed - allowed):
            self._find("extra-object", f"`{place}/{name}` was not sealed")
        return needed <= names

    def _sample_ids(self, file: SealedFile) -> None:
        if "steps" in file.root:
            steps = file.root.group("steps")
            for name in steps.names():
                group = steps.group(name)
                self._members(group, set(group.names()), OF_IDS, set())

    def _captures(self, file: SealedFile, gaps: list[Gap] | None) -> list[range]:
        """Verify every series against the captures root; if that fails, against its own digests; return where the payloads are."""
        found = self._found
        series = list(self._series(file))
        found.captures_root = captures_root([(one.key, one.dtype, one.computed) for one in series], gaps or [])
        sealed = found.captures_root == found.attributes.get("captures_root")
        lost = self._listed - found.captures if self._listed is not None else 0
        for one in series:
            if one.disagreeing is not None:
                found.findings += (
                    stored_digest_changes(found.name, one.disagreeing) if sealed else changes(found.name, one.disagreeing, lost)
                )
            found.findings += one.columns
        self._lost(lost, sealed)
        return [one.payloads for one in series]

    def _lost(self, lost: int, sealed: bool) -> None:
        """Report that series or gaps differ from the sealed ones, if nothing else was found."""
        if sealed or self._unread or self._found.findings:
            return
        if self._listed is None:
            self._find("captures-root", "the series and gaps of the file are not those that the captures root covers")
        elif lost > 0:
            self._find("missing-object", f"a series is missing: {lost} captures fewer than the ledger lists")
        elif lost < 0:
            self._find("extra-object", f"a series was added: {-lost} captures more than the ledger lists")
        else:
            self._find("gaps-edited", "the list of gaps, or the list of series, changed")

    def _series(self, file: SealedFile) -> Iterator[_Checked]:
        """Read every series that can be opened."""
        if "captures" not in file.root:
            return
        captures = file.root.group("captures")
        self._class_only(captures, "NXentry")
        for probe in captures.names():
            try:
                self._class_only(captures.group(probe), "NXcollection")
            except FileRefused as refused:
                self._unread += 1
                self.refused(refused)
            if self._unread >= MOST_UNREAD:
                break
        for address in with_progress(self._addresses(file), "series"):
            if self._unread >= MOST_UNREAD:
                self._find("damaged", f"{self._unread} series cannot be read, so the series after them were not checked")
                return
            try:
                group = file.group(address)
                attributes = group.attributes()
                if not self._is_whole(group, attributes):
                    self._unread += 1
                    continue
                yield self._checked(group, attributes, file.part_of(address, group, attributes))
            except FileRefused as refused:
                self._unread += 1
                self.refused(refused, address.key)

    def _addresses(self, file: SealedFile) -> list[SeriesAddress]:
        try:
            return list(file.addresses)
        except FileRefused as refused:
            self.refused(refused)
            return []

    def _class_only(self, group: Hdf5Group, name: str) -> None:
        attributes = group.attributes()
        leads_to = attributes.pop("default", None)
        if attributes != {"NX_class": name} or (leads_to is not None and leads_to not in group.names()):
            self._find("attribute-edited", f"an attribute of `{group.name}` changed")

    def _is_whole(self, group: Hdf5Group, attributes: dict[str, Any]) -> bool:
        """Whether a series has every object of its layout; missing and additional objects are reported."""
        names = set(group.names())
        columns = {name for name in COLUMNS if name not in attributes}
        axes = set(attributes.get("dimensions") or attributes.get("axes") or ()) - {"step"}
        needed = {"values", "step", "global_step", "block_digest", "block", "digest_byte"}
        more = {name for name in names if name.startswith(LABELS)} | (
            {"order", "variants"} - {*attributes} if self._proof != "proof.v1" else set()
        )
        columns |= {"variant"} if "variants" in attributes or "variants" in names else set()
        return self._members(group, names, needed | columns | axes | OF_LAYOUT.get(str(attributes.get("layout")), set()), more)

    def _checked(self, group: Hdf5Group, attributes: dict[str, Any], part: SealedPart) -> _Checked:
        """Read all bytes of a series.

        Raises:
            FileRefused: they cannot be read.
        """
        self._found.captures += len(part.clocks)
        self._found.series.append(outline_of_part(part))
        if not _is_described(attributes, self._proof):
            self._find("attribute-edited", f"an attribute of `{part.key}` changed", part.key)
        _ = part.variants  # raises if they do not fit the captures
        digests = SeriesDigests.of(part, str(attributes.get("digest")))
        columns = list(self._columns(group, part))
        return _Checked(part.key, part.dtype, digests.computed, part.extent, None if digests.agree else digests, columns)

    def _columns(self, group: Hdf5Group, part: SealedPart) -> Iterator[Finding]:
        """Check the columns that can be derived from clocks and shapes, and that the file has for other readers."""
        known = part.clocks["global_step"] != UNKNOWN_STEP
        ahead = part.clocks["global_step"].astype(np.int64) - part.clocks["step"].astype(np.int64)
        odd = np.flatnonzero(known & (ahead != ahead[known.argmax()])) if known.any() else known
        if len(odd) and len(np.unique(part.clocks["epoch"])) == 1:
            step = int(part.clocks["step"][odd[0]])
            message = f"`{part.key}`: the global step of step {step} changed"
            yield Finding("clock-edited", self._found.name, message, part.key, (step, step))
        if "offset" in group:
            lengths = sizes(part.shapes, part.dtype) // DTYPES[part.dtype].lanes
            if not np.array_equal(group.array("offset").read(), np.cumsum(lengths) - lengths):
                yield Finding("clock-edited", self._found.name, f"`{part.key}`: the offsets of its captures changed", part.key)

    def _find(self, code: str, message: str, series: SeriesKey | None = None) -> None:
        self._found.findings.append(Finding(code, self._found.name, message, series))


def _is_described(attributes: dict[str, Any], proof: str) -> bool:
    """Whether the attributes of a group are those that its digest `described` covers."""
    rest = {name: value for name, value in attributes.items() if name not in UNDESCRIBED}
    return bool(blake3_hex(canonical_of(proof)(rest)) == attributes.get("described"))


def _json(text: bytes | None) -> Any:
    try:
        return plain_json(text or b"null")
    except ValueError:
        return None


def _object(text: bytes | None) -> dict[str, Any]:
    found = _json(text)
    return found if isinstance(found, dict) else {}


def _named(record: object) -> tuple[str, str] | None:
    return (str(record.get("name")), str(record.get("sha256"))) if isinstance(record, dict) else None


def _gaps(text: bytes | None) -> list[Gap] | None:
    """The gaps of a file, or None if they cannot be read."""
    rows = _json(text)
    return [(SeriesKey(*row[:4]), row[4], row[5]) for row in rows] if are_gaps(rows) else None
