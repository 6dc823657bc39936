"""Print the result of a verification, for a terminal."""

from __future__ import annotations

from probes.printable import counted, one_line
from probes.proof.finding import CheckedFile, Finding, Verdict

ALONE = "a person who changed the file could also have changed its digests; verify it in its run directory with `--anchor`"


def text(verdict: Verdict) -> str:
    """A verdict for a terminal: files, then findings, then the answer."""
    lines = [_file(file, verdict.findings) for file in verdict.files]
    lines += ["", *(_finding(finding) for finding in verdict.findings)] if verdict.findings else []
    return "\n".join(map(one_line, [*lines, "", _answer(verdict)]))


def _file(file: CheckedFile, findings: tuple[Finding, ...]) -> str:
    codes = sorted({finding.code for finding in findings if finding.file == file.file})
    state = "ok" if file.ok else "NOT OK"
    noted = f"  ({', '.join(codes)})" if codes else ""
    return f"{state:<6}  {file.file}  {counted(file.captures, 'capture')}  root {file.captures_root[:12] or 'unknown'}{noted}"


def _finding(finding: Finding) -> str:
    mark = "note" if finding.note else "error"
    return f"{mark}[{finding.code}]: {finding.file}: {finding.message}"


def _answer(verdict: Verdict) -> str:
    head = f", ledger head {verdict.head}" if verdict.head else ""
    wrong = sum(not finding.note for finding in verdict.findings)
    if verdict.ok:
        captures = sum(file.captures for file in verdict.files)
        runs = f" of {counted(verdict.runs, 'run')}" if verdict.runs > 1 else ""
        answer = f"verifies: {counted(captures, 'capture')} in {counted(len(verdict.files), 'file')}{runs}"
    else:
        answer = f"does not verify: {counted(wrong, 'finding')}"
    return f"{verdict.path} {answer}{head}, {anchored(verdict)}"


def anchored(verdict: Verdict) -> str:
    """Return what the verdict was compared with outside of the run."""
    if verdict.alone:
        return f"alone, not anchored: {ALONE}"
    if not verdict.anchored:
        covered = any(finding.code in ("anchor-partial", "anchor-replaced") for finding in verdict.findings)
        return "as anchored in part" if covered and verdict.ok else "not anchored"
    grown = any(finding.code in ("ledger-grown", "anchor-resumed") for finding in verdict.findings)
    signed = f", signed by {', '.join(f'`{name}`' for name in verdict.signed_by)}" if verdict.signed_by else ""
    if not verdict.ok:
        return f"only the ledger head is as anchored{signed}"
    return f"as anchored{', up to the lines that were added later' if grown else ''}{signed}"
