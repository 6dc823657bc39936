"""What can be wrong with a run, and with a file of it."""

from __future__ import annotations

from probes.error_codes.code import Code

PROOF: dict[str, Code] = {
    "not-hdf5": Code("The file is not an HDF5 file."),
    "not-a-capture-file": Code("The file is an HDF5 file, but not a capture file."),
    "newer-format": Code("The file, the ledger or the manifest has a format that this release does not know."),
    "damaged": Code("The internal structures of the HDF5 file cannot be read."),
    "truncated": Code("The file is shorter than when it was sealed."),
    "trailing-bytes": Code("Bytes were appended to the file."),
    "file-changed": Code("Captures and texts are intact, but other bytes of the file changed since it was sealed."),
    "bit-flip": Code("Bytes of a capture changed."),
    "step-missing": Code("Captures were removed from a series."),
    "step-added": Code("Captures were added to a series."),
    "clock-edited": Code("The name of a series, or the clock or the shape of its captures changed; the bytes did not change."),
    "dtype-changed": Code("The dtype of a series changed; its bytes did not change."),
    "digest-edited": Code("A digest stored in the file changed; the data that it covers did not change."),
    "attribute-edited": Code("An attribute changed."),
    "series-renamed": Code("A series was renamed."),
    "extra-object": Code("The file contains a series, a dataset or a group that was not sealed."),
    "missing-object": Code("A series, a dataset or a group that was sealed is missing in the file."),
    "gaps-edited": Code("The list of gaps (captures that were due but are missing) changed."),
    "captures-root": Code("The series and gaps of the file differ from those that were sealed."),
    "epoch-root": Code("The data about the end of the epoch (closing record) or its origin (manifest) changed."),
    "file-root": Code("A text, a sample id, an attribute, a label or the structure of the file changed; the captures did not."),
    "spec-edited": Code("The spec in the file differs from the spec of the run."),
    "manifest-edited": Code("The manifest differs from the manifest that the run wrote."),
    "diff-edited": Code("The file `code.diff` (uncommitted changes) differs from the one that the run wrote."),
    "sources-edited": Code("A file `sources*.zip` (imported sources) differs from the one that the run wrote."),
    "algorithm": Code("The file names another digest algorithm than BLAKE3; it may be weaker."),
    "external-link": Code("The file contains a link to another file."),
    "soft-link": Code("The file contains a soft link."),
    "unsafe-type": Code("The file contains a data type that capture files never have."),
    "unknown-filter": Code("The file needs a filter that is not allowed."),
    "shape-bomb": Code("A dataset declares more elements than the file stores."),
    "file-missing": Code("A file that the ledger lists is missing."),
    "file-unlisted": Code("A file exists that no ledger lists."),
    "files-swapped": Code("A file has the content of another file in the ledger."),
    "ledger-missing": Code("Sealed files exist, but no ledger."),
    "ledger-edited": Code("A line of the ledger changed."),
    "ledger-reordered": Code("The lines of the ledger are in another order."),
    "ledger-line-missing": Code("A line was removed from the ledger."),
    "ledger-misplaced": Code(
        "A line of the ledger is of another ledger, or states another epoch, attempt, segment or rank than its file name."
    ),
    "launch-differs": Code("Ranks of manifests and files do not fit the number of processes that the manifests state."),
    "replicas-differ": Code("With `--replicas`: a parameter, its gradient or its state differs between ranks that must have the same."),
    "not-regular": Code("A link, a directory, a device or a pipe has the name of a file of the run."),
    "oversized": Code("A ledger, a manifest or a text is larger than any that a run writes."),
    "anchor-replaced": Code(
        "A file of a complete epoch that the anchor covers is replaced by a file of a later attempt that no anchor covers."
    ),
    "anchor-uncovered": Code("The file was sealed after the anchor was taken, so the anchor does not cover it."),
    "ledger-rolled-back": Code("The ledger does not contain the line whose hash is the anchor."),
    "unsealed": Code("The epoch is still a journal and cannot be verified; `probes recover` seals the journal of a killed run."),
    "nothing": Code("The directory or file contains nothing to verify."),
    "crashed": Code("The child process that read the file crashed."),
    "incomplete": Code("note: the epoch ended early, and the file says so."),
    "gaps": Code("note: captures that were due are missing, and the file gives the reason."),
    "proof-v1": Code(
        "note: the file was sealed by an earlier release, and no ledger lists it: its digests do not cover attributes of datasets, "
        "sample ids, the closing record, nor what of the manifest does not enter its identity."
    ),
    "unconfined": Code("note: the kernel cannot keep the child of `--untrusted` from writing files, or from the network."),
    "manifest-uncovered": Code("note: no file has a copy of a manifest, because the start that wrote it sealed none; no digest covers it."),
    "uncovered": Code("note: a file in the run directory that is no part of the proof; no digest covers it."),
    "superseded": Code("note: a file of a later attempt replaces this file."),
    "ledger-grown": Code("note: lines were added to the ledger since the anchor was taken."),
    "anchor-resumed": Code(
        "note: the anchor covers an epoch that was not complete, and since then the run was resumed and recorded that epoch again."
    ),
    "anchor-partial": Code("note: the anchor is the head of the ledger of one rank, and does not cover the other ledgers."),
    "ledger-torn": Code("note: the last line of the ledger is incomplete and is ignored."),
}
"""What `probes verify` finds. `note` marks a fact that is no damage; the run still verifies."""

FILES: dict[str, Code] = {
    "not-a-journal": Code("The file is not a journal."),
    "journal-empty": Code("The journal contains no committed step."),
    "journal-inconsistent": Code("The records of the journal are intact, but they contradict each other or the file name."),
    "unknown-format": Code("The journal has a format that this release does not know."),
    "virtual-dataset": Code("The file contains a virtual dataset: its data is in other datasets."),
    "external-storage": Code("The file contains a dataset with external storage: its bytes are in another file."),
    "not-an-anchor": Code("The file, tag or run of a tracker given as anchor has no ledger head, or that of another run."),
    "not-signed": Code("The anchor has no valid signature by a key of the file that `--signers` names."),
    "bad-manifest": Code("The file is not a valid manifest."),
}
"""A file of a run cannot be read, or is not safe to."""
