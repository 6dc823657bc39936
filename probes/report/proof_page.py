"""A page on a verification: what it proves of a run, how, and what it does not prove."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from probes.errors import ProbesError
from probes.printable import counted
from probes.proof.finding import Verdict
from probes.report.page import Block, Heading, Paragraph, Table
from probes.run_directory.listing import Directory

YES, NO, PARTLY = "proven", "NOT PROVEN", "in part"
INSIDE = frozenset(
    {"damaged", "bit-flip", "step-missing", "step-added", "clock-edited", "dtype-changed", "digest-edited", "series-renamed", "gaps-edited"}
    | {"captures-root"}
)
ORIGIN = frozenset(["epoch-root", "spec-edited", "manifest-edited", "diff-edited", "sources-edited", "launch-differs"])
CHAIN = frozenset(
    {"file-missing", "file-unlisted", "files-swapped", "ledger-missing", "ledger-edited", "ledger-reordered", "ledger-line-missing"}
    | {"ledger-misplaced"}
)
REPLACED = frozenset(["ledger-rolled-back", "anchor-replaced", "anchor-uncovered"])
FACTS = (
    ("run", "run_id"),
    ("started", "started"),
    ("spec", "spec.name"),
    ("identity of the spec", "identity.spec"),
    ("script", "code.script"),
    ("SHA-256 of the script", "code.sha256"),
    ("commit", "code.git.commit"),
    ("uncommitted changes", "code.git.diff.sha256"),
    ("identity of the code", "identity.code"),
    ("structure of the models", "identity.structure"),
    ("weights at the start", "identity.weights"),
    ("PyTorch", "environment.torch"),
    ("Python", "environment.python"),
    ("device", "environment.device"),
    ("processes", "environment.world"),
    ("deterministic algorithms", "environment.deterministic"),
    ("seed of PyTorch", "random.torch_seed"),
)


def blocks(verdict: Verdict, *, origin: bool = True) -> list[Block]:
    """The page of a verification.

    Args:
        verdict: what was found.
        origin: whether to read the manifest of the run, which a stranger may have written, in this process.
    """
    wrong = [finding for finding in verdict.findings if not finding.note]
    answer = "verifies" if verdict.ok else f"does not verify: {counted(len(wrong), 'finding')}"
    return [
        Heading(f'Proof of "{verdict.path}"', 1),
        Paragraph(f"The run {verdict.run_id or 'without a name'} {answer}. It has {counted(len(verdict.files), 'file')} of captures."),
        Heading("What is proven, and by what"),
        Table(("claim", "answer", "by"), [*_claims(verdict)]),
        Heading("What is not proven"),
        Table(("not proven", "because"), [*_limits(verdict)]),
        Heading("Findings and notes"),
        Table(("kind", "code", "file", "message"), [_finding(one.note, one.code, one.file, one.message) for one in verdict.findings]),
        *([] if verdict.findings else [Paragraph("None.")]),
        *(_origin(Path(verdict.path)) if origin and verdict.runs == 1 else ()),
        Heading("Files"),
        Table(
            ("file", "answer", "captures", "captures root", "epoch root"),
            [(one.file, "ok" if one.ok else "NOT OK", str(one.captures), one.captures_root, one.epoch_root) for one in verdict.files],
        ),
    ]


def _finding(note: bool, code: str, file: str, message: str) -> tuple[str, str, str, str]:
    return "note" if note else "error", code, file, message


def _claims(verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    codes = {finding.code for finding in verdict.findings if not finding.note}

    def holds(against: frozenset[str]) -> str:
        return NO if codes & against or (codes and not codes <= INSIDE | ORIGIN | CHAIN | REPLACED) else YES

    listed = "each series is hashed in blocks; the captures root covers all of them"
    yield "Every captured value, its step and its series are as when the file was sealed.", holds(INSIDE), listed
    yield "Spec, models, code and environment are those that the run recorded.", holds(ORIGIN), "the epoch root and the manifest"
    if verdict.alone:
        yield "No file is missing, added or exchanged.", NO, "there is no ledger next to the file"
    else:
        yield "No file is missing, added or exchanged.", holds(CHAIN), "the ledger: each line has the hash of a file and of the line before"
    yield "Every other byte of the files is as when they were sealed.", YES if verdict.ok else NO, _cover(verdict)
    yield "Nobody has replaced the run as a whole since the anchor was taken.", _anchored(verdict), _anchor(verdict)


def _cover(verdict: Verdict) -> str:
    if not verdict.alone:
        return "the hash of each file in the ledger, and the file root in it"
    old = any(finding.code == "proof-v1" for finding in verdict.findings)
    return "nothing: the file is of an earlier release (see the note `proof-v1`)" if old else "the file root in the file"


def _anchored(verdict: Verdict) -> str:
    if not verdict.ok:
        return NO
    partly = any(finding.code in ("anchor-partial", "ledger-grown", "anchor-resumed") for finding in verdict.findings)
    return PARTLY if partly else YES if verdict.anchored else NO


def _anchor(verdict: Verdict) -> str:
    head = f"; the head of the ledger is {verdict.head}" if verdict.head else ""
    return f"the anchor that was given{head}" if verdict.anchored else f"no anchor covers all of it{head}"


def _limits(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if not verdict.anchored:
        yield (
            "That this is the run that was recorded, and not another one in its place.",
            "Anyone with the directory can replace it all, digests too. Keep the head in another place (`probes anchor`), and give it.",
        )
    yield (
        "That the recorded program produced these values.",
        "The digests are made by the process that records. Run it again (`probes replay --expect`) and compare.",
    )
    yield (
        "What happened to values between the hook and the sealed file.",
        "With `durability: process` nothing is hashed before the epoch is sealed; with `power` each payload is.",
    )
    yield (
        "That the data was the same.",
        "Only data named with `--data`, sample ids that the loop gave, and of DataLoaders the fingerprint of the data set, or its content "
        "in memory, are recorded.",
    )
    yield (
        "What other files the program has read.",
        "Files that Python reads as code are recorded, also plug-ins and those of `runpy`; text that the program reads and runs by `exec` "
        "is not.",
    )
    yield (
        "What the environment was at every moment.",
        "It is read when the run starts, in its first step and at the end of each epoch.",
    )
    for finding in verdict.findings:
        if finding.code == "manifest-uncovered":
            yield f"What `{finding.file}` says.", "The start that wrote it sealed no file, and only files have a copy that digests cover."
    uncovered = [finding.file for finding in verdict.findings if finding.code == "uncovered"]
    if uncovered:
        yield (
            f"The content of other files in the directory: {', '.join(uncovered)}.",
            "They are not part of the proof: no digest covers them.",
        )
    yield "Secrets that were masked.", "Where a text has `***`, its digest is of the masked text."
    if any(finding.code in ("gaps", "incomplete", "superseded") for finding in verdict.findings):
        yield "That every capture that was due is there.", "The files say themselves what is missing; see the notes."


def _origin(path: Path) -> Iterator[Block]:
    """The statements of the manifest, as far as it can be read."""
    try:
        files = Directory(path)
        manifest = files.manifest
        closing = files.closing(files.current[-1].name) if files.current else {}
    except ProbesError:
        return
    rows = facts(manifest)
    rows += [(f"data `{name}`", str(digest)) for name, digest in sorted(_table(manifest, "data").items())]
    rows += [*_loaders(closing)]
    rows += [(f"unknown: {name}", str(why)) for name, why in sorted(_table(manifest, "unknown").items())]
    if rows:
        yield Heading("Origin, as the manifest states it")
        yield Table(("what", "value"), rows)


def _loaders(closing: Any) -> Iterator[tuple[str, str]]:
    """The data sources of the DataLoaders, as stated in the last file."""
    found = closing.get("loaders") if isinstance(closing, Mapping) else None
    for number, loader in enumerate(found if isinstance(found, list) else ()):
        for name in ("dataset", "sampler", "seed"):
            if isinstance(loader, Mapping) and loader.get(name) is not None:
                yield f"{name} of loader {number}", json.dumps(loader[name])


def facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The statements of a manifest on the origin of its run, in words."""
    return [(name, str(value)) for name, place in FACTS if (value := _at(manifest, place)) is not None]


def _table(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = manifest.get(name)
    return found if isinstance(found, Mapping) else {}


def _at(manifest: Mapping[str, Any], place: str) -> Any:
    value: Any = manifest
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
