"""Errors in a run, and in a file of it."""

from __future__ import annotations

from probes.error_codes.code import Code

COPY = (
    "Copy the run again from the machine that recorded it, and verify the copy; if the original has the same finding, do not rely on what "
    "the finding names."
)

DAMAGE: dict[str, Code] = {
    "not-hdf5": Code(
        "The file is not an HDF5 file.",
        advice=(
            "It may be another file under this name, or the first bytes of a capture file were overwritten. A transfer that was cut "
            f"off or converted line ends does that too. {COPY}"
        ),
    ),
    "not-a-capture-file": Code(
        "The file is an HDF5 file, but not a capture file.",
        advice="Another program wrote it. Capture files are those that a run writes (`epoch-NNNN.h5`); `probes ls RUN` lists them.",
    ),
    "newer-format": Code(
        "The file, the ledger or the manifest has a format that this release does not know.",
        advice=(
            "A later release of torch-probes wrote it: install that release or a newer one (`pip install -U torch-probes`), and "
            "verify again. The content was not checked."
        ),
    ),
    "damaged": Code(
        "The internal structures of the HDF5 file cannot be read.",
        advice=(
            "Bytes that describe the file (not the captures) were changed, by a failing disk, a transfer, or somebody. What could "
            f"not be read was not verified. {COPY}"
        ),
    ),
    "truncated": Code(
        "The file is shorter than when it was sealed.",
        advice=f"A copy or a download ended early, a disk was full, or somebody cut the file. {COPY}",
    ),
    "trailing-bytes": Code(
        "Bytes were appended to the file.",
        advice=(
            "The first part is the sealed file; readers ignore the appended bytes. A transfer may have appended to an "
            f"existing file. {COPY}"
        ),
    ),
    "file-changed": Code(
        "Captures and texts are intact, but other bytes of the file changed since it was sealed.",
        advice=(
            "The captures are those that were sealed. Some program may have opened the file for writing: h5py in the mode `r+` or "
            f"`a` changes bytes even if it writes no value. {COPY}"
        ),
    ),
    "bit-flip": Code(
        "Bytes of a capture changed.",
        advice=(
            "A disk or a transfer failed, a program opened the file for writing, or somebody changed a number. The finding names "
            "series and steps; captures below 64 KiB are hashed in blocks, so it may name a range. Other series of the file are as "
            f"sealed unless they are named too. {COPY} `probes diff` with a good copy shows which values changed."
        ),
    ),
    "step-missing": Code(
        "Captures were removed from a series.",
        advice=(
            "Captures that the digest of the series covers are not there: a program rewrote the series without them, or somebody "
            f"removed them. They are not gaps of the recording; those are in the list of gaps. {COPY}"
        ),
    ),
    "step-added": Code(
        "Captures were added to a series.",
        advice=f"The series has more captures than its digest covers: a program or somebody added them. {COPY}",
    ),
    "clock-edited": Code(
        "The name of a series, or the clock or the shape of its captures changed; the bytes did not change.",
        advice=(
            "The values are those that were sealed, but at another step, call or shape, or under another name, so a "
            f"comparison or an average over steps would be wrong. {COPY}"
        ),
    ),
    "dtype-changed": Code(
        "The dtype of a series changed; its bytes did not change.",
        advice=f"The same bytes would be read as other numbers. A program that converts HDF5 files may do that, or somebody did. {COPY}",
    ),
    "digest-edited": Code(
        "A digest stored in the file changed; the data that it covers did not change.",
        advice=(
            "The captures are covered by the root of the file and are as sealed; only a stored digest is wrong, so "
            f"findings and `probes diff --by-digest` would be wrong too. {COPY}"
        ),
    ),
    "attribute-edited": Code(
        "An attribute changed.",
        advice=(
            "Attributes state dtypes, axes, hooks and totals. A program that adds attributes of its own (a viewer, a catalog) has "
            f"the same effect: let it work on a copy. {COPY}"
        ),
    ),
    "series-renamed": Code(
        "A series was renamed.",
        advice=f"The captures would be taken for those of another probe or module. {COPY}",
    ),
    "extra-object": Code(
        "The file contains a series, a dataset or a group that was not sealed.",
        advice=(
            "A program stored something of its own in the file, or somebody added captures that no hook made. Keep results of an "
            f"analysis in another file. {COPY}"
        ),
    ),
    "missing-object": Code(
        "A series, a dataset or a group that was sealed is missing in the file.",
        advice=f"A program that repacked the file left it out, or somebody removed it. {COPY}",
    ),
    "gaps-edited": Code(
        "The list of gaps (captures that were due but are missing) changed.",
        advice=(
            "The list states which captures are missing, and why. A shorter list hides missing captures; a longer list gives a "
            f"false reason for captures that were removed. {COPY}"
        ),
    ),
    "captures-root": Code(
        "The series and gaps of the file differ from those that were sealed.",
        advice=(
            "Each series agrees with its own digest, but together they are not what was sealed: a series or a gap was added, "
            f"removed, or replaced with its digests. {COPY}"
        ),
    ),
    "epoch-root": Code(
        "The data about the end of the epoch (closing record) or its origin (manifest) changed.",
        advice=(
            "The captures are as sealed, but the data about them changed: how the epoch ended, its counters, or which spec, code, "
            f"model and environment made them. {COPY}"
        ),
    ),
    "file-root": Code(
        "A text, a sample id, an attribute, a label or the structure of the file changed; the captures did not.",
        advice=(f"Texts that readers show with the values changed, such as labels of axes, sample ids, or the text of the spec. {COPY}"),
    ),
    "spec-edited": Code(
        "The spec in the file differs from the spec of the run.",
        advice=(
            "Somebody edited `spec.yaml` in the run directory, or a file of another run was put here. To change a spec, edit your "
            f"own copy and record a new run. {COPY}"
        ),
    ),
    "manifest-edited": Code(
        "The manifest differs from the manifest that the run wrote.",
        advice=(
            "Somebody edited `run.json` (seeds, packages, arguments), or a file of another run was put here. The manifest in each "
            f"capture file is the one that its digests cover. {COPY}"
        ),
    ),
    "diff-edited": Code(
        "The file `code.diff` (uncommitted changes) differs from the one that the run wrote.",
        advice=f"The uncommitted changes that are kept next to the run are not those of the recorded program; do not apply them. {COPY}",
    ),
    "sources-edited": Code(
        "A file `sources*.zip` (imported sources) differs from the one that the run wrote.",
        advice=f"The sources that are kept next to the run are not those that the program imported; do not run them. {COPY}",
    ),
    "algorithm": Code(
        "The file names a digest algorithm other than BLAKE3; it may be weaker.",
        advice=f"A forger may name an algorithm whose digests are easy to forge. Files of torch-probes use BLAKE3 only. {COPY}",
    ),
    "external-link": Code(
        "The file contains a link to another file.",
        advice=(
            "Reading it would open another file of your machine. The target of the link was not read. No release writes such a file: "
            "treat it as made by somebody else."
        ),
    ),
    "soft-link": Code(
        "The file contains a soft link.",
        advice=(
            "A second name for an object may show captures under another series. The target of the link was not read. No release "
            "writes such a file: treat it as made by somebody else."
        ),
    ),
    "unsafe-type": Code(
        "The file contains a data type that capture files never have.",
        advice=(
            "Reading such a type (references, variable lengths, compounds) runs code of the HDF5 library that is not needed for "
            "captures. It was not read. No release writes such a file."
        ),
    ),
    "unknown-filter": Code(
        "The file needs a filter that is not allowed.",
        advice=(
            "A filter is a program that decompresses; a filter that capture files do not use must be loaded as a plug-in. "
            "It was not read. No release writes such a file."
        ),
    ),
    "shape-bomb": Code(
        "A dataset declares more elements than the file stores.",
        advice=(
            "Reading it would take far more memory than the file has bytes, so it was not read. No release writes such a file: "
            "treat it as made by somebody else."
        ),
    ),
    "file-missing": Code(
        "A file that the ledger lists is missing.",
        advice=(
            "It was deleted, or not copied. Copy it from the machine that recorded the run; `probes verify` detects a file with "
            "another content. Without it, the epoch is not proven."
        ),
    ),
    "file-unlisted": Code(
        "A file exists that no ledger lists.",
        advice=(
            "A file from elsewhere was copied into the directory, or somebody added an epoch. Readers do not show it. If the run "
            "was killed while it sealed, run `probes recover RUN`."
        ),
    ),
    "files-swapped": Code(
        "A file has the content of another file in the ledger.",
        advice=(
            "Two files exchanged their names, so that captures would be read as those of another epoch or rank. Rename them back as "
            "the finding says."
        ),
    ),
    "ledger-missing": Code(
        "Sealed files exist, but no ledger.",
        advice=(
            "`ledger.jsonl` was deleted, or not copied. Each file can be verified alone, but then nothing shows whether a file "
            "is missing or exchanged."
        ),
    ),
    "ledger-edited": Code(
        "A line of the ledger changed.",
        advice=(
            "A line does not agree with its file, or with the hash in the line after it. An edited line can hide an attempt "
            f"or an incomplete epoch. {COPY}"
        ),
    ),
    "ledger-reordered": Code(
        "The lines of the ledger are in another order.",
        advice=f"Each line has the hash of the line before, and these do not follow each other. {COPY}",
    ),
    "ledger-line-missing": Code(
        "A line was removed from the ledger.",
        advice=f"A line has the hash of a line that is missing: somebody removed it, together with its file or to replace it. {COPY}",
    ),
    "ledger-misplaced": Code(
        "A line of the ledger belongs to another ledger, or its epoch, attempt, segment or rank differs from its file name.",
        advice=f"A line was copied from the ledger of another rank or run, or its file was renamed. {COPY}",
    ),
    "launch-differs": Code(
        "Ranks of manifests and files do not fit the number of processes that the manifests state.",
        advice=(
            "A rank is missing, was added, or belongs to another launch. Copy the files of all ranks into one directory; the "
            "finding names what does not fit."
        ),
    ),
    "replicas-differ": Code(
        "With `--replicas`: a parameter, its gradient or its state differs between ranks that must have the same.",
        advice=(
            "Data-parallel ranks drifted apart: a seed, a missing synchronization of gradients or buffers, or a kernel that is not "
            "deterministic. The finding names the first step; `probes diff RUN RUN --rank` and `probes show --rank` show the "
            "values."
        ),
    ),
    "not-regular": Code(
        "A link, a directory, a device or a pipe has the name of a file of the run.",
        advice=(
            "A run contains regular files only; the target of a link or a pipe is not read. Copy the run with links replaced by "
            "files (`cp -rL`), if you trust their targets."
        ),
    ),
    "unreadable": Code(
        "A file of the run cannot be read.",
        advice=(
            "The message has the reason of the operating system: you may not read the file (`chmod`), or its disk has an error. Nothing "
            "is known about its content; verify the run again when it can be read."
        ),
    ),
    "oversized": Code(
        "A ledger, a manifest or a text is larger than any that a run writes.",
        advice="It was not read, since reading would take much memory. No run writes such a file: treat it as made by somebody else.",
    ),
    "anchor-replaced": Code(
        "A file of a complete epoch that the anchor covers is replaced by a file of a later attempt that no anchor covers.",
        advice=(
            "A run that is resumed never records a complete epoch again, so somebody replaced it. The anchored file may still "
            "exist: the finding names it."
        ),
    ),
    "anchor-uncovered": Code(
        "The file was sealed after the anchor was taken, so the anchor does not cover it.",
        advice="The file may be right, but the anchor cannot show it. Ask for an anchor that was taken at the end of the run.",
    ),
    "ledger-rolled-back": Code(
        "The ledger does not contain the line whose hash is the anchor.",
        advice=(
            "Lines at the end were removed together with their files, the whole ledger was rewritten, or the anchor is of another run. "
            "Compare the run with the place of the anchor."
        ),
    ),
    "unsealed": Code(
        "The epoch is still a journal and cannot be verified; `probes recover` seals the journal of a killed run.",
        advice=(
            "The run has not ended yet, or was killed before the epoch was sealed. Wait for its end, or seal with `probes recover "
            "RUN`, then verify."
        ),
    ),
    "nothing": Code(
        "The directory or file contains nothing to verify.",
        advice=(
            "The run was killed before its first epoch ended, captured nothing, or this is the wrong directory. `probes ls` lists runs."
        ),
    ),
    "crashed": Code(
        "The child process that read the file crashed.",
        advice=f"A file that crashes the HDF5 library is damaged or malicious. Nothing in it is proven. {COPY}",
    ),
}
"""Findings of `probes verify` after which a run does not verify."""
