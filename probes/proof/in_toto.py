"""An in-toto Statement v1 about a verified run, which another tool signs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from probes.errors import UsageError
from probes.plain_file import read_plain
from probes.proof.finding import Verdict

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:torch-probes:captures:v1"


def statement(verdict: Verdict) -> dict[str, Any]:
    """The statement: files and their digests as subjects, roots and ledger head as predicate.

    Args:
        verdict: of a verification that took the SHA-256 of the files and found nothing wrong.

    Raises:
        UsageError: something is wrong with the run, the files were not hashed, or there are several runs.
    """
    if not verdict.ok:
        raise UsageError("a statement is made only of what verifies")
    if verdict.runs != 1:
        raise UsageError(f'"{verdict.path}" has {verdict.runs} runs; a statement is of one run')
    if not all(file.file_sha256 for file in verdict.files):
        raise UsageError("a statement names the SHA-256 of every file; verify with sha256=True")
    place = Path(verdict.path)
    subjects = [{"name": file.file, "digest": {"sha256": file.file_sha256, "blake3": file.file_blake3}} for file in verdict.files]
    if place.is_dir():
        others = {finding.file for finding in verdict.findings if finding.code == "uncovered"} | {file.file for file in verdict.files}
        beside = sorted(path for path in place.iterdir() if path.name not in others and not path.is_dir())
        subjects += [{"name": path.name, "digest": {"sha256": hashlib.sha256(read_plain(path)).hexdigest()}} for path in beside]
    epochs = [{"file": file.file, "captures_root": file.captures_root, "epoch_root": file.epoch_root} for file in verdict.files]
    notes = sorted({finding.code for finding in verdict.findings})
    predicate = {"run_id": verdict.run_id, "ledger_head": verdict.head, "algorithm": "blake3", "files": epochs, "notes": notes}
    return {"_type": STATEMENT, "subject": subjects, "predicateType": PREDICATE, "predicate": predicate}
