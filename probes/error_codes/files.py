"""Why a file of a run, or an anchor, is refused."""

from __future__ import annotations

from probes.error_codes.code import Code

FILES: dict[str, Code] = {
    "not-a-journal": Code(
        "The file is not a journal.",
        advice=(
            "Another program wrote it, or its first bytes were lost. `probes recover` leaves it as it is; a run whose journals are "
            "whole is not affected."
        ),
    ),
    "journal-empty": Code(
        "The journal contains no committed step.",
        advice="The program ended before its first step was committed, so nothing was lost.",
    ),
    "journal-inconsistent": Code(
        "The records of the journal are intact, but they contradict each other or the file name.",
        advice=(
            "Somebody edited or exchanged the journal; a crash alone does not do that. Nothing is sealed from it, and the file is kept."
        ),
    ),
    "unknown-format": Code(
        "The journal has a format that this release does not know.",
        advice="A later release of torch-probes wrote it: recover it with that release.",
    ),
    "virtual-dataset": Code(
        "The file contains a virtual dataset: its data is in other datasets.",
        advice="Reading it would open other files of your machine. No release writes such a file: treat it as made by somebody else.",
    ),
    "external-storage": Code(
        "The file contains a dataset with external storage: its bytes are in another file.",
        advice="Reading it would open another file of your machine. No release writes such a file: treat it as made by somebody else.",
    ),
    "not-an-anchor": Code(
        "The file, tag or run of a tracker given as anchor has no ledger head, or that of another run.",
        advice=(
            "Check that the anchor is of this run: the message names both. An anchor must not lie in the run directory, since who "
            "can change the run could change it too."
        ),
    ),
    "not-signed": Code(
        "The anchor has no valid signature by a key of the file that `--signers` names.",
        advice=(
            "Ask the owner of the key for a signature (`probes anchor --sign KEY`), and check that the file of `--signers` has a "
            "line for that key."
        ),
    ),
    "bad-manifest": Code(
        "The file is not a valid manifest.",
        advice=(
            "`run.json` was edited or damaged, or a later release wrote it. `probes verify` says which; the manifest in a capture "
            "file is a copy."
        ),
    ),
}
"""A file of a run cannot be read, or is not safe to."""
