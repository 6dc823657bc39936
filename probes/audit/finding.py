"""What a verification found, as values; nothing here reads or prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from probes.clock import SeriesKey

# Every code, and what it means. `note` marks what is no damage: the proof holds, but there is something to know.
CODES: dict[str, str] = {
    "not-hdf5": "the file is not an HDF5 file",
    "not-a-capture-file": "the file is HDF5, but not a file of captures",
    "newer-format": "the file, the ledger or the manifest is of a format that this release does not know",
    "damaged": "HDF5's own structures cannot be read",
    "truncated": "the file is shorter than when it was sealed",
    "trailing-bytes": "something was appended to the file",
    "file-changed": "captures and texts are intact, but bytes outside of them differ from the ledger",
    "bit-flip": "bytes of a capture changed",
    "step-missing": "captures were taken out of a series",
    "step-added": "captures were added to a series",
    "clock-edited": "the clock or the shape of captures changed, their bytes did not",
    "dtype-changed": "the bytes of a series are read as another dtype than they were captured in",
    "digest-edited": "a digest stored in the file changed, what it is of did not",
    "attribute-edited": "an attribute changed",
    "series-renamed": "a series stands under another name",
    "extra-object": "the file holds a series, a dataset or a group that was not sealed",
    "missing-object": "the file lacks a series, a dataset or a group that was sealed",
    "gaps-edited": "the list of what was due and not captured changed",
    "captures-root": "the series and gaps of the file are not those that were sealed",
    "epoch-root": "what the file says of the epoch's end or origin changed",
    "spec-edited": "the spec is not the one that was run",
    "manifest-edited": "the manifest is not the one that was written",
    "diff-edited": "the saved difference to the commit is not the one that was written",
    "algorithm": "digests are said to be of another algorithm, which would be weaker or unknown",
    "external-link": "the file leads to another file",
    "soft-link": "the file holds a soft link",
    "unsafe-type": "the file holds a type that captures never have",
    "unknown-filter": "the file needs a filter that is not allowed",
    "shape-bomb": "a dataset declares more than it stores",
    "file-missing": "a file that the ledger lists is not there",
    "file-unlisted": "a file is there that no ledger lists",
    "files-swapped": "a file holds what the ledger lists under another name",
    "ledger-missing": "there are sealed files and no ledger",
    "ledger-edited": "a line of the ledger changed",
    "ledger-reordered": "the lines of the ledger were put into another order",
    "ledger-line-missing": "a line was taken out of the ledger",
    "ledger-rolled-back": "the ledger does not hold the line that the anchor was taken from",
    "unsealed": "an epoch is still in its journal, so there is nothing to verify",
    "nothing": "there is nothing to verify",
    "crashed": "the process that read the file died",
    "incomplete": "note: the epoch did not come to its end, and says so",
    "gaps": "note: captures that were due are not there, and the file says why",
    "superseded": "note: a later attempt takes the place of the file",
    "ledger-grown": "note: lines were added to the ledger since the anchor was taken",
    "ledger-torn": "note: the last line of the ledger was not written to its end, and does not count",
}
NOTES = frozenset(code for code, text in CODES.items() if text.startswith("note: "))


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it was sealed, or that is worth knowing.

    Attributes:
        code: one of `CODES`.
        file: name of the file, in the run directory.
        message: what was found, and what was expected.
        series: the series, where it is about one.
        steps: first and last step it can be about; of small captures those of their digest block.
    """

    code: str
    file: str
    message: str
    series: SeriesKey | None = None
    steps: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise AssertionError(f"BUG: the code {self.code!r} is not listed")

    @property
    def note(self) -> bool:
        """Whether the proof holds in spite of it."""
        return self.code in NOTES

    def __str__(self) -> str:
        return f"{self.code}  {self.file}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {**asdict(self), "note": self.note, "series": self.series._asdict() if self.series else None}


@dataclass(frozen=True)
class Checked:
    """One file that was verified.

    Attributes:
        file: its name.
        bytes: its size.
        captures: how many captures it holds.
        captures_root: as computed from what it holds; empty where it could not be.
        epoch_root: likewise.
        file_blake3: of its bytes; empty where nothing asked for it.
        file_sha256: of its bytes, where asked for; else empty.
        ok: whether nothing but notes was found in it.
    """

    file: str
    bytes: int
    captures: int = 0
    captures_root: str = ""
    epoch_root: str = ""
    file_blake3: str = ""
    file_sha256: str = ""
    ok: bool = True


@dataclass(frozen=True)
class Verdict:
    """What a verification found.

    Attributes:
        path: what was verified, as it was named.
        run_id: name of the run.
        findings: what is wrong, and notes, in the order of the files.
        files: what was verified.
        head: head of the ledger; empty for a file alone.
        anchored: whether an anchor was given and found.
    """

    path: str
    run_id: str
    findings: tuple[Finding, ...]
    files: tuple[Checked, ...]
    head: str = ""
    anchored: bool = False

    @property
    def ok(self) -> bool:
        """Whether everything is as it was sealed."""
        return all(finding.note for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "ok": self.ok,
            "path": self.path,
            "run_id": self.run_id,
            "head": self.head,
            "anchored": self.anchored,
            "files": [asdict(file) for file in self.files],
            "findings": [finding.as_dict() for finding in self.findings],
        }
