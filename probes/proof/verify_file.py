"""Verifying one sealed file from what stands in it: structure, captures, texts and roots."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from probes.capture_file.hdf5_read import Group
from probes.capture_file.read import SealedFile, SealedPart
from probes.capture_file.roots import root_of_epoch
from probes.capture_file.series_part import sizes
from probes.clock import SeriesKey
from probes.digest import ALGORITHM, blake3_hex, canonical, captures_root
from probes.errors import FileRefused
from probes.proof.finding import CODES, Finding
from probes.proof.series_check import StoredDigests, check_series
from probes.run_directory.manifest import Manifest, identity

# Texts of the file, and what it is called when one changed.
TEXTS = {"spec": "spec-edited", "resolved": "spec-edited", "manifest": "manifest-edited", "closing": "epoch-root", "gaps": "gaps-edited"}
COLUMNS = ("epoch", "microstep", "call", "backward")
OF_LAYOUT = {"stacked": set[str](), "concatenated": {"row_size"}, "ragged": {"offset", "shape", "axis"}}
OF_IDS = {"step", "row_size", "sample_id", "sample"}
DIGESTS = frozenset({"digest", "described"})
RELEASE_BYTES = 64 << 20
SEARCHED = 4096
_WRONG_TYPE = re.compile(r'" holds \w+ for \w+$')
UNKNOWN_STEP = np.uint64((1 << 64) - 1)

Gap = tuple[SeriesKey, str, int]
Row = tuple[SeriesKey, str, str]


class Inspection:
    """One file, verified; the work is done when it is made.

    Args:
        path: the file.

    Attributes:
        name: of the file.
        findings: what is wrong with it.
        attributes: of its root; empty where it could not be opened.
        captures: how many captures it holds.
        captures_root: as computed; empty where it could not be.
        epoch_root: likewise.
        manifest: the manifest in it, as plain data.
        spec: the spec in it.
        gaps: what was due and is not there, with reasons and counts.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.findings: list[Finding] = []
        self.attributes: dict[str, Any] = {}
        self.captures = 0
        self.captures_root = self.epoch_root = ""
        self.manifest: dict[str, Any] = {}
        self.spec = b""
        self.gaps: list[Gap] = []
        self._read = self._unread = 0
        try:
            self._file = SealedFile(path)
            self.attributes = self._file.attributes
            with self._file.root.checking():  # whatever a changed byte makes of a type or a number
                self._inspect()
        except FileRefused as refused:
            self._refused(refused)

    @staticmethod
    def text_of(path: Path, name: str) -> bytes:
        """A text dataset of a sealed file, nothing else of which is looked at."""
        return SealedFile(path).root.text(name).encode()

    def _inspect(self) -> None:
        if self.attributes.get("digest_algorithm") != ALGORITHM:
            self._find("algorithm", f'digests are said to be of "{self.attributes.get("digest_algorithm")}"; this format has {ALGORITHM}')
        self._described("the root", self._file.root.name, self.attributes)
        texts = self._texts()
        self._members(self._file.root, {"captures", *TEXTS}, {"steps"})
        self._ids()
        parts = list(self._parts())
        self.captures = sum(len(part.clocks) for _, part in parts)
        closing, gaps = _json(texts.get("closing")), _gaps(texts.get("gaps"))
        self.gaps = gaps or []
        lost = self._claimed(closing) - self.captures
        stated, found = self._series(parts, lost)
        self._root(stated, found, gaps, lost)
        self._origin(texts, closing)

    def _texts(self) -> dict[str, bytes]:
        texts = {}
        for name in TEXTS:
            try:
                if name in self._file.root:
                    texts[name] = self._file.root.text(name).encode()
            except FileRefused as refused:
                garbled = "codec can't decode" in str(refused)
                self._find(TEXTS[name] if garbled else "damaged", f"`{name}` is not UTF-8" if garbled else str(refused))
        self.spec = texts.get("spec", b"")
        found = _json(texts.get("manifest"))
        self.manifest = found if isinstance(found, dict) else {}
        return texts

    def _members(self, group: Group, needed: set[str], allowed: set[str]) -> None:
        """Note what a group lacks, and what it holds that was not sealed."""
        there = set(group.names())
        place = group.name.rstrip("/")
        for name in sorted(needed - there):
            self._find("missing-object", f'"{place}/{name}" is not there')
        for name in sorted(there - needed - allowed):
            self._find("extra-object", f'"{place}/{name}" was not sealed')

    def _ids(self) -> None:
        if "steps" not in self._file.root:
            return
        steps = self._file.root.group("steps")
        for name in steps.names():
            self._members(steps.group(name), OF_IDS, set())

    def _parts(self) -> Iterator[tuple[Group, SealedPart]]:
        """Every series that can be read."""
        if "captures" not in self._file.root:
            return
        captures = self._file.root.group("captures")
        self._class_only(captures, "NXentry")
        for probe in captures.names():
            try:
                self._class_only(captures.group(probe), "NXcollection")
            except FileRefused as refused:
                self._refused(refused)
        for address, (probe, name) in self._addresses().items():
            try:
                group = captures.group(probe).group(name)
                self._shape_of_group(group)
                yield group, self._file.part(address)
            except FileRefused as refused:
                self._refused(refused, address.key)
                self._unread += 1

    def _addresses(self) -> dict[Any, tuple[str, str]]:
        try:
            return self._file.addresses
        except FileRefused as refused:
            self._refused(refused)
            return {}

    def _class_only(self, group: Group, name: str) -> None:
        if group.attributes() != {"NX_class": name}:
            self._find("attribute-edited", f'"{group.name}" has other attributes than it was sealed with')

    def _shape_of_group(self, group: Group) -> None:
        """Note objects of a series that are missing or too many, and whether it stands under its own name."""
        attributes = group.attributes()
        columns = {name for name in COLUMNS if name not in attributes}
        axes = set(attributes.get("axes") or ()) - {"step"}
        needed = {"values", "step", "global_step", "block_digest", "block", "digest_byte"}
        self._members(group, needed | columns | axes | OF_LAYOUT.get(str(attributes.get("layout")), set()), set())

    def _series(self, parts: list[tuple[Group, SealedPart]], lost: int) -> tuple[list[Row], list[Row]]:
        """Verify every series; returns their rows of the captures root, as stated and as computed."""
        stated, computed = [], []
        for group, part in parts:
            attributes = group.attributes()
            says = StoredDigests(str(attributes.get("digest")), part.block_digests, lost)
            try:
                digest, wrong = check_series(self.name, part, says, self._has_read)
                wrong = wrong or list(self._columns(group, part))
            except FileRefused as refused:
                self._refused(refused, part.key)
                self._unread += 1
                continue
            self.findings += self._plainest(part.key, wrong, self._is_described(attributes))
            stated.append((part.key, part.dtype, says.digest))
            computed.append((part.key, part.dtype, digest))
        return stated, computed

    def _plainest(self, key: SeriesKey, wrong: list[Finding], described: bool) -> list[Finding]:
        """What is wrong with a series, by its plainest name: an edited attribute moves its clocks, key or dtype too."""
        found = [one.code for one in wrong]
        if not described and "dtype-changed" not in found:
            wrong = [one for one in wrong if one.code != "clock-edited"]
            return [*wrong, Finding("attribute-edited", self.name, f"an attribute of {key} changed", key)]
        if "clock-edited" in found and not self._is_known(key):
            return [Finding("series-renamed", self.name, f"{key} is no series of this spec and model", key)]
        return wrong

    def _is_known(self, key: SeriesKey) -> bool:
        """Whether the manifest has the probe of a series, and its module or tensor."""
        try:
            found = Manifest.model_validate(self.manifest)
        except ValidationError:
            return True
        targets = {module.path for model in found.models for module in model.modules}
        targets |= {tensor.name for model in found.models for tensor in model.tensors}
        return key.probe in found.spec.probes and key.target in targets

    def _columns(self, group: Group, part: SealedPart) -> Iterator[Finding]:
        """What follows from the clocks and shapes, and stands in the file for other readers."""
        known = part.clocks["global_step"] != UNKNOWN_STEP
        ahead = part.clocks["global_step"].astype(np.int64) - part.clocks["step"].astype(np.int64)
        odd = np.flatnonzero(known & (ahead != ahead[known.argmax()])) if known.any() else known
        if len(odd) and len(np.unique(part.clocks["epoch"])) == 1:
            step = int(part.clocks["step"][odd[0]])
            yield Finding("clock-edited", self.name, f"{part.key}: the global step of step {step} changed", part.key, (step, step))
        if "offset" in group:
            lengths = sizes(part.shapes, part.dtype)
            if not np.array_equal(group.array("offset").read(), np.cumsum(lengths) - lengths):
                yield Finding("clock-edited", self.name, f"{part.key}: the offsets of its captures changed", part.key)

    def _has_read(self, size: int) -> None:
        self._read += size
        if self._read >= RELEASE_BYTES:
            self._read = 0
            self._file.release()

    def _claimed(self, closing: Any) -> int:
        """How many captures the epoch root was made with; what is there where that cannot be told."""
        known = str(self.attributes.get("captures_root"))
        for distance in range(SEARCHED):
            for count in {self.captures + distance, self.captures - distance}:
                if count >= 0 and self._epoch_root(closing, known, count) == self.attributes.get("epoch_root"):
                    return count
        return self.captures

    def _epoch_root(self, closing: Any, root: str, count: int) -> str:
        ended = closing if isinstance(closing, dict) else {}
        return root_of_epoch(self.manifest, ended, root, count, bool(self.attributes.get("complete")))

    def _root(self, stated: list[Row], computed: list[Row], gaps: list[Gap] | None, lost: int) -> None:
        known = self.attributes.get("captures_root")
        self.captures_root = captures_root(computed, gaps or [])
        root = captures_root(stated, gaps or [])
        if root == known or self._unread or any(one.code in ("dtype-changed", "step-missing", "step-added") for one in self.findings):
            return
        if self.captures_root == known:
            self.findings = [one for one in self.findings if one.code != "clock-edited"]
            self._find("digest-edited", "a series digest was changed, what it is of was not")
            return
        for one in stated:
            if captures_root([other for other in stated if other is not one], gaps or []) == known:
                self._find("extra-object", f"{one[0]} was not sealed", one[0])
                return
        if lost > 0:
            self._find("missing-object", f"a series is not there: {lost} captures less than when it was sealed")
        elif gaps is None or (gaps and captures_root(stated, []) == known) or not any(not one.note for one in self.findings):
            self._find("gaps-edited" if self._series_intact() else "captures-root", "the gaps, or which series there are, changed")

    def _series_intact(self) -> bool:
        return not any(one.series for one in self.findings)

    def _origin(self, texts: dict[str, bytes], closing: Any) -> None:
        """Spec, manifest and the epoch's end against the digests that cover them."""
        found = None
        if "manifest" in texts and not self.manifest:
            self._find("manifest-edited", "the manifest is not a JSON object")
        try:
            found = Manifest.model_validate(self.manifest) if self.manifest else None
        except ValidationError as error:
            self._find("manifest-edited", f"the manifest does not fit its schema: {error.errors()[0]['msg']}")
        if found is not None:
            wrong = {name for name, value in identity(found) if value != getattr(found.identity, name)}
            if wrong:
                self._find("manifest-edited", f"the manifest states another {' and '.join(sorted(wrong))} than its tables have")
            if found.rank != self.attributes.get("rank"):
                self._find("manifest-edited", f"the manifest is of rank {found.rank}, the file of rank {self.attributes.get('rank')}")
            if sha256(self.spec).hexdigest() != found.spec.sha256:
                self._find("spec-edited", "the spec is not the one that the manifest names")
            if sha256(texts.get("resolved", b"")).hexdigest() != found.spec.resolved_sha256:
                self._find("spec-edited", "the resolved spec is not the one that the manifest names")
        root = self._epoch_root(closing, self.captures_root, self.captures)
        self.epoch_root = root
        if not self.findings and root != self.attributes.get("epoch_root"):
            self._find("epoch-root", "the origin or the end of the epoch is not what the epoch root was made of")

    def _described(self, what: str, place: str, attributes: dict[str, Any]) -> None:
        if not self._is_described(attributes):
            self._find("attribute-edited", f'an attribute of {what} ("{place}") changed')

    def _is_described(self, attributes: dict[str, Any]) -> bool:
        rest = {name: value for name, value in attributes.items() if name not in DIGESTS}
        return bool(blake3_hex(canonical(rest)) == attributes.get("described"))

    def _refused(self, refused: FileRefused, series: SeriesKey | None = None) -> None:
        code = refused.code if refused.code in CODES else "damaged"
        if "not the series that its name says" in str(refused):
            code = "series-renamed"
        if _WRONG_TYPE.search(str(refused)):
            code = "dtype-changed"
        if code == "damaged" and self.findings and self.findings[-1].code == "missing-object":
            return
        self._find(code, str(refused).partition(": ")[2], series)

    def _find(self, code: str, message: str, series: SeriesKey | None = None) -> None:
        self.findings.append(Finding(code, self.name, message, series))


def _json(text: bytes | None) -> Any:
    try:
        return json.loads(text or b"null")
    except (ValueError, RecursionError):
        return None


def _gaps(text: bytes | None) -> list[Gap] | None:
    """The gaps of a file, or None where they cannot be read."""
    rows = _json(text)
    try:
        return [(SeriesKey(*row[:4]), str(row[4]), int(row[5])) for row in rows]
    except (TypeError, ValueError, IndexError):
        return None
