"""Checking the ledger of a ledger, line by line, without stopping at the first broken one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from probes.digest import blake3_hex, canonical
from probes.proof.finding import Finding
from probes.run_directory.ledger import FIRST, FORMAT, LedgerLine, split
from probes.run_directory.ledger import line as line_of


class LedgerCheck(NamedTuple):
    """A ledger that was read.

    Attributes:
        name: of the file.
        entries: the lines that could be read.
        heads: BLAKE3 of every line, as it stands there.
        findings: what is wrong with it.
    """

    name: str
    entries: tuple[LedgerLine, ...]
    heads: tuple[str, ...]
    findings: tuple[Finding, ...]


def check_ledger(path: Path) -> LedgerCheck:
    """Read a ledger and check that each line follows the one before."""
    name = path.name
    lines, rest = split(path.read_bytes())
    findings = [Finding("ledger-torn", name, f"the last {len(rest)} bytes are no whole line")] if rest else []
    entries: list[LedgerLine | None] = []
    for number, line in enumerate(lines, 1):
        entry = _entry(name, number, line)
        if isinstance(entry, Finding):
            findings.append(entry)
        entries.append(entry if isinstance(entry, LedgerLine) else None)
    heads = tuple(blake3_hex(line) for line in lines)
    findings += _links(name, entries, heads)
    return LedgerCheck(name, tuple(entry for entry in entries if entry is not None), heads, tuple(findings))


def _entry(name: str, number: int, line: bytes) -> LedgerLine | Finding:
    try:
        found = json.loads(line)
        if isinstance(found, dict) and str(found.get("format", FORMAT)) != FORMAT:
            return Finding("newer-format", name, f'line {number} has the format "{found["format"]}"; this release reads "{FORMAT}"')
        entry = LedgerLine.model_validate(found)
    except (ValueError, ValidationError, RecursionError):
        return Finding("ledger-edited", name, f"line {number} is not a ledger line")
    if line_of(entry) != line:
        return Finding("ledger-edited", name, f"line {number} is not in the canonical form of a ledger line")
    return entry


def _links(name: str, entries: Sequence[LedgerLine | None], heads: Sequence[str]) -> list[Finding]:
    """Where the ledger is broken: lines in another order, lines that are not there, or a line that changed."""
    whole = [entry for entry in entries if entry is not None]
    indices = [entry.index for entry in whole]
    if len(whole) == len(entries) and indices != sorted(indices) and sorted(indices) == list(range(len(indices))):
        return [Finding("ledger-reordered", name, f"the lines are in the order {', '.join(map(str, indices))}")]
    findings: list[Finding] = []
    expected = 0
    for number, entry in enumerate(entries, 1):
        if entry is None:
            expected += 1
            continue
        before = heads[number - 2] if number > 1 else FIRST
        if entry.index == expected and entry.previous == before:
            expected += 1
            continue
        findings.append(_broken(name, number, entry, expected, before))
        expected = max(entry.index, expected) + 1
    return findings


def _broken(name: str, number: int, entry: LedgerLine, expected: int, before: str) -> Finding:
    if entry.index > expected and entry.previous != before:
        lost = f"{entry.index - expected} lines were taken out" if entry.index - expected > 1 else "a line was taken out"
        return Finding("ledger-line-missing", name, f"{lost} before line {number} ({entry.file})")
    if entry.index != expected:
        return Finding("ledger-edited", name, f"line {number} ({entry.file}) calls itself number {entry.index}, not {expected}")
    place = f"line {number - 1}" if number > 1 else "line 1"
    return Finding(
        "ledger-edited", name, f"line {number} ({entry.file}) follows a line with the hash {entry.previous[:12]}; {place} changed"
    )


def head_of(ledgers: Sequence[LedgerCheck]) -> str:
    """The head of a run: of its ledger, or over the heads of the ledgers of all ranks; empty without a line."""
    heads = {ledger.name: ledger.heads[-1] for ledger in ledgers if ledger.heads}
    if len(heads) < 2:
        return next(iter(heads.values()), "")
    return blake3_hex(canonical(heads))


def check_anchor(ledgers: Sequence[LedgerCheck], anchor: str) -> list[Finding]:
    """Whether a ledger still holds the line that an anchor was taken from.

    Args:
        ledgers: the ledgers of the run.
        anchor: a head that was noted earlier, or at least its first 8 digits.
    """
    wanted = anchor.lower()
    if head_of(ledgers).startswith(wanted) and len(wanted) >= 8:
        return []
    for ledger in ledgers:
        for number, head in enumerate(ledger.heads, 1):
            if len(wanted) >= 8 and head.startswith(wanted):
                later = len(ledger.heads) - number
                return [Finding("ledger-grown", ledger.name, f"{later} lines follow the one that the anchor names")] if later else []
    lines = sum(len(ledger.heads) for ledger in ledgers)
    name = ledgers[0].name if ledgers else "ledger.jsonl"
    return [Finding("ledger-rolled-back", name, f"none of its {lines} lines has the hash {anchor}: lines were cut off or rewritten")]
