"""`probes.verify` and `probes.diff` for programs and notebooks: their results print as the verbs do."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

from probes.printable import html_lines
from probes.proof import diff as proof_diff
from probes.proof import verify as proof_verify
from probes.proof.comparison.difference import Difference
from probes.proof.finding import Verdict
from probes.report import difference_text, verdict_text


@dataclass(frozen=True, repr=False)
class PrintedVerdict(Verdict):
    """A verdict; `print` shows what `probes verify` prints, and a notebook the same."""

    def __str__(self) -> str:
        return verdict_text.text(self)

    def _repr_html_(self) -> str:
        return html_lines(str(self))


@dataclass(frozen=True, repr=False)
class PrintedDifference(Difference):
    """A difference; `print` shows what `probes diff` prints, and a notebook the same."""

    def __str__(self) -> str:
        return difference_text.text(self)

    def _repr_html_(self) -> str:
        return html_lines(str(self))


@wraps(proof_verify.verify)
def verify(*args: Any, **options: Any) -> PrintedVerdict:
    """Check every byte of a run; see `probes.proof.verify.verify`."""
    found = proof_verify.verify(*args, **options)
    return PrintedVerdict(**_values(found))


@wraps(proof_diff.diff)
def diff(*args: Any, **options: Any) -> PrintedDifference:
    """Compare two runs; see `probes.proof.diff.diff`."""
    found = proof_diff.diff(*args, **options)
    return PrintedDifference(**_values(found))


def _values(found: Verdict | Difference) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in fields(found)}
