"""What can be wrong with a run, and with a file of it."""

from __future__ import annotations

from probes.error_codes.code import Code

PROOF: dict[str, Code] = {
    "not-hdf5": Code("The file is not an HDF5 file."),
    "not-a-capture-file": Code("The file is HDF5, but not a file of captures."),
    "newer-format": Code("The file, the ledger or the manifest is of a format that this release does not know."),
    "damaged": Code("HDF5's own structures cannot be read."),
    "truncated": Code("The file is shorter than when it was sealed."),
    "trailing-bytes": Code("Something was appended to the file."),
    "file-changed": Code("Captures and texts are intact, but bytes outside of them differ from the ledger."),
    "bit-flip": Code("Bytes of a capture changed."),
    "step-missing": Code("Captures were taken out of a series."),
    "step-added": Code("Captures were added to a series."),
    "clock-edited": Code("The clock or the shape of captures changed, their bytes did not."),
    "dtype-changed": Code("The bytes of a series are read as another dtype than they were captured in."),
    "digest-edited": Code("A digest stored in the file changed, what it is of did not."),
    "attribute-edited": Code("An attribute changed."),
    "series-renamed": Code("A series stands under another name."),
    "extra-object": Code("The file holds a series, a dataset or a group that was not sealed."),
    "missing-object": Code("The file lacks a series, a dataset or a group that was sealed."),
    "gaps-edited": Code("The list of what was due and not captured changed."),
    "captures-root": Code("The series and gaps of the file are not those that were sealed."),
    "epoch-root": Code("What the file says of the epoch's end or origin changed."),
    "spec-edited": Code("The spec is not the one that was run."),
    "manifest-edited": Code("The manifest is not the one that was written."),
    "diff-edited": Code("The saved difference to the commit is not the one that was written."),
    "algorithm": Code("Digests are said to be of another algorithm, which would be weaker or unknown."),
    "external-link": Code("The file leads to another file."),
    "soft-link": Code("The file holds a soft link."),
    "unsafe-type": Code("The file holds a type that captures never have."),
    "unknown-filter": Code("The file needs a filter that is not allowed."),
    "shape-bomb": Code("A dataset declares more than it stores."),
    "file-missing": Code("A file that the ledger lists is not there."),
    "file-unlisted": Code("A file is there that no ledger lists."),
    "files-swapped": Code("A file holds what the ledger lists under another name."),
    "ledger-missing": Code("There are sealed files and no ledger."),
    "ledger-edited": Code("A line of the ledger changed."),
    "ledger-reordered": Code("The lines of the ledger were put into another order."),
    "ledger-line-missing": Code("A line was taken out of the ledger."),
    "ledger-rolled-back": Code("The ledger does not hold the line that the anchor was taken from."),
    "unsealed": Code("An epoch is still in its journal, so there is nothing to verify."),
    "nothing": Code("There is nothing to verify."),
    "crashed": Code("The process that read the file died."),
    "incomplete": Code("note: the epoch did not come to its end, and says so."),
    "gaps": Code("note: captures that were due are not there, and the file says why."),
    "superseded": Code("note: a later attempt takes the place of the file."),
    "ledger-grown": Code("note: lines were added to the ledger since the anchor was taken."),
    "ledger-torn": Code("note: the last line of the ledger was not written to its end, and does not count."),
}
"""What `probes verify` finds. `note` marks what is no damage: the proof holds, but there is something to know."""

FILES: dict[str, Code] = {
    "not-a-journal": Code("The file is not the journal of a run."),
    "journal-empty": Code("The journal was only just begun: nothing was committed to it."),
    "journal-inconsistent": Code("A journal is whole, but what it says does not agree with itself or its name."),
    "unknown-format": Code("The journal is of a format that this release does not know."),
    "virtual-dataset": Code("The file holds a dataset that is put together from others."),
    "external-storage": Code("The file holds a dataset that keeps its bytes in another file."),
    "bad-ledger": Code("The ledger of the run is not what a ledger is."),
    "bad-manifest": Code("The manifest of the run is not what a manifest is."),
    "ledger-chain": Code("A line of the ledger does not follow the line before it."),
    "ledger-anchor": Code("No line of the ledger has the hash that was given as anchor."),
    "ledger-line": Code("A line of the ledger is not an entry, or not written the way entries are."),
}
"""A file of a run cannot be read, or is not safe to."""
