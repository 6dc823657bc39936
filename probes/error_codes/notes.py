"""Remarks on a run that verifies."""

from __future__ import annotations

from probes.error_codes.code import Code

NOTES: dict[str, Code] = {
    "incomplete": Code(
        "note: the epoch ended early, and the file says so.",
        advice=(
            "The program was stopped, failed, or left its loop early; the finding has the reason. The captures up to there are "
            "proven. `--resume` records the epoch again."
        ),
    ),
    "gaps": Code(
        "note: captures that were due are missing, and the file gives the reason.",
        advice=(
            "The finding names the reason, such as no gradient in a step, or a limit. The stored values are proven. If you "
            "expected the gap, do nothing; otherwise change the spec and record again."
        ),
    ),
    "proof-v1": Code(
        "note: the file was sealed by an earlier release, and no ledger lists it: its digests do not cover attributes of "
        "datasets, sample ids, the closing record, or the parts of the manifest that are not in its identity.",
        advice="Verify it in its run directory: there the ledger has a hash of the whole file.",
    ),
    "unconfined": Code(
        "note: the kernel cannot keep the child of `--untrusted` from writing files, or from the network.",
        advice=(
            "The file was read in a child with limits, but without that protection. On Linux it needs Landlock (kernel 5.13) and "
            "seccomp. For a file that may be malicious, use a machine that you can delete afterwards."
        ),
    ),
    "manifest-uncovered": Code(
        "note: no file has a copy of a manifest, because the start that wrote it sealed none; no digest covers it.",
        advice="Nothing was captured by that start, so nothing depends on what the manifest says; do not rely on it.",
    ),
    "uncovered": Code(
        "note: a file in the run directory is not part of the proof; no digest covers it.",
        advice=(
            "You may have put it there (a plot, notes), or somebody else: nothing shows that it belongs to the run. Captures do not "
            "depend on it."
        ),
    ),
    "superseded": Code(
        "note: readers show another attempt at the epoch of this file.",
        advice=(
            "The run was resumed and recorded the epoch, or a part of it, again. `probes ls --attempts` lists all attempts; "
            "open this file by its path to read it."
        ),
    ),
    "ledger-grown": Code(
        "note: lines were added to the ledger since the anchor was taken.",
        advice="The run continued after the anchor was taken. The anchored files did not change; take a new anchor for the others.",
    ),
    "anchor-resumed": Code(
        "note: the anchor covers an epoch that was not complete, and since then the run was resumed and recorded that epoch again.",
        advice="The anchored part of the epoch is still there as the earlier attempt; take a new anchor for what was recorded since.",
    ),
    "anchor-partial": Code(
        "note: the anchor is the head of the ledger of one rank, and does not cover the other ledgers.",
        advice="Anchor the head of the run, which rank 0 prints at the end and `probes anchor RUN` keeps.",
    ),
    "ledger-torn": Code(
        "note: the last line of the ledger is incomplete and is ignored.",
        advice="A process was killed while it wrote the line. `probes recover RUN` seals what it left.",
    ),
}
"""Findings of `probes verify` after which a run still verifies."""
