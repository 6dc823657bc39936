"""The results of a verification, as values; this module neither reads nor prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from probes.clock import SeriesKey
from probes.error_codes import PROOF
from probes.printable import counted, html_lines, html_table, one_line

CODES = PROOF
NOTES = frozenset(code for code, row in PROOF.items() if row.meaning.startswith("note: "))


@dataclass(frozen=True, repr=False)
class Finding:
    """One difference from the sealed state, or a fact worth a note.

    Attributes:
        code: one of `codes.PROOF`.
        file: name of the file, in the run directory.
        message: what was found, and what was expected.
        series: the series, if it is about one.
        steps: first and last step it can be about; of small captures those of their digest block.
    """

    code: str
    file: str
    message: str
    series: SeriesKey | None = None
    steps: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.code not in PROOF:
            raise AssertionError(f"BUG: the code {self.code!r} is not listed")

    @property
    def note(self) -> bool:
        """Whether the proof holds despite the finding."""
        return self.code in NOTES

    def __str__(self) -> str:
        return f"{self.code}  {self.file}: {self.message}"

    def __repr__(self) -> str:
        return f"<Finding {self.code}: {one_line(self.file)}>"

    def _repr_html_(self) -> str:
        return html_lines(str(self))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {**asdict(self), "note": self.note, "series": self.series._asdict() if self.series else None}


@dataclass(frozen=True, repr=False)
class CheckedFile:
    """One file that was verified.

    Attributes:
        file: its name.
        bytes: its size.
        captures: how many captures it holds.
        captures_root: as computed from what it holds; empty if it could not be.
        epoch_root: likewise.
        file_blake3: of its bytes; empty if nothing asked for it.
        file_sha256: of its bytes, if requested; else empty.
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

    def __repr__(self) -> str:
        return f"<CheckedFile {one_line(self.file)}: {'ok' if self.ok else 'not ok'}, {counted(self.captures, 'capture')}>"

    def _repr_html_(self) -> str:
        return html_table(("CheckedFile", ""), asdict(self).items())


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of a verification.

    Attributes:
        path: what was verified, as it was named.
        run_id: name of the run.
        findings: what is wrong, and notes, in the order of the files.
        files: what was verified.
        head: head of the ledger; empty for a file alone, and for several runs.
        anchored: whether anchors were given, found, and cover everything but what was added later.
        alone: whether it is one file without a ledger next to it, so that nothing but its own digests was compared.
        runs: how many runs were verified.
        signed_by: who signed the anchors, if that was checked.
        weights: digest of the weights at the first start of the run, the same in every layout; empty if it is not known, or if
            no digest covers a manifest of that start.
        epoch_weights: the same digest at the end of each epoch that states its weights (`provenance: {weights: epochs}`).
    """

    path: str
    run_id: str
    findings: tuple[Finding, ...]
    files: tuple[CheckedFile, ...]
    head: str = ""
    anchored: bool = False
    alone: bool = False
    runs: int = 1
    signed_by: tuple[str, ...] = ()
    weights: str = ""
    epoch_weights: Mapping[int, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing changed since sealing."""
        return all(finding.note for finding in self.findings)

    def __repr__(self) -> str:
        wrong = sum(not finding.note for finding in self.findings)
        return f'<Verdict "{self.path}": {"verifies" if self.ok else counted(wrong, "finding")}, {counted(len(self.files), "file")}>'

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "ok": self.ok,
            "path": self.path,
            "run_id": self.run_id,
            "head": self.head,
            "anchored": self.anchored,
            "alone": self.alone,
            "runs": self.runs,
            "signed_by": list(self.signed_by),
            "weights": self.weights,
            "epoch_weights": {str(epoch): found for epoch, found in self.epoch_weights.items()},
            "files": [asdict(file) for file in self.files],
            "findings": [finding.as_dict() for finding in self.findings],
        }
