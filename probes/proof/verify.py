"""Verify a run or one of its files: whether everything is as it was sealed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from probes.errors import StorageError, UsageError
from probes.progress.loops import with_progress
from probes.proof.anchor import checked
from probes.proof.comparison.replicas import replica_findings
from probes.proof.finding import Finding, Verdict
from probes.proof.run_check import RunCheck
from probes.run_directory.file_name import attempt_of_manifest
from probes.run_directory.launch.whole_weights import weights_at_start, weights_by_epoch
from probes.run_directory.listing import Directory
from probes.run_directory.search import is_run, remote_url, run_directories


def verify(path: str | Path, *, anchor: str | Sequence[str] | None = None, sha256: bool = False, replicas: bool = False) -> Verdict:
    """Check every byte of a run, or of one file, against its digests, the ledger and the manifest.

    Needs no torch and no network, writes nothing, and trusts nothing in the files.

    Args:
        path: a run directory, a directory of runs (each of them is verified), one file, or the URL of a run in a store that fsspec
            reaches, which is downloaded; a file is checked against the ledger next to it, if there is one.
        anchor: the head of the ledger that was printed at the end of the run, or at least its first 32 digits; of a run of several
            ranks the head of the run, or the heads of the ledgers.
        sha256: take the SHA-256 of the files too.
        replicas: also compare parameters, their gradients as the optimizer uses them, and their state between the ranks of a launch.

    Returns:
        What was found; nothing is printed.

    Raises:
        StorageError: there is nothing there.
        UsageError: an anchor is too short, or is given for a file that has no ledger, or for several runs.
    """
    found, anchors = Path(path), checked(anchor)
    url = remote_url(path)
    if url is not None:
        from probes.run_directory.remote.mirror import RemoteMirror  # most runs are on this machine

        mirror = RemoteMirror(url)
        mirror.fetch_all()
        return replace(_one_run(mirror.path, anchors, sha256), path=url)
    if not found.exists():
        raise StorageError(f'"{found}" does not exist; `probes ls` lists the runs under runs/')
    verdict = _every_run(found, anchors, sha256) if found.is_dir() and not is_run(found) else _one_run(found, anchors, sha256)
    return _with_replicas(verdict, found) if replicas else verdict


def _with_replicas(verdict: Verdict, path: Path) -> Verdict:
    """The verdict with differences between the ranks of each run; runs that do not verify are skipped."""
    runs = [path] if is_run(path) or not path.is_dir() else sorted(run_directories(path))
    if not verdict.ok:
        return verdict
    found: list[Finding] = []
    for run in runs:
        name = "" if len(runs) == 1 else f"{run.relative_to(path)}/"
        found += [replace(one, file=name + one.file) for one in replica_findings(run)]
    return replace(verdict, findings=(*verdict.findings, *found))


def _one_run(path: Path, anchors: Sequence[str], sha256: bool) -> Verdict:
    with closing(RunCheck(path, sha256)) as check:
        if anchors and not check.has_ledger and not path.is_dir():
            raise UsageError(f'"{path}" has no ledger next to it, so nothing of it can be anchored; give the run directory')
        verdict = check.verdict(anchors)
        has_weights = check.has_weights
    if not (verdict.ok and path.is_dir()):
        return verdict
    epochs = weights_by_epoch(Directory(path)) if has_weights else {}
    uncovered = any(one.code == "manifest-uncovered" and attempt_of_manifest(one.file) == 1 for one in verdict.findings)
    weights = "" if uncovered else weights_at_start(path) or ""
    return replace(verdict, weights=weights, epoch_weights={epoch: found or "" for epoch, found in epochs.items()})


def _every_run(path: Path, anchors: Sequence[str], sha256: bool) -> Verdict:
    """One verdict over all runs below a directory, whose files are named with their run."""
    links: list[Path] = []
    runs = sorted(run_directories(path, inside=True, links=links))
    if not runs and not links:
        raise StorageError(f'"{path}" holds no run: there is no run.json, no ledger and no epoch file in it')
    if anchors and len(runs) > 1:
        raise UsageError(f'"{path}" has {len(runs)} runs; an anchor is of one run')
    verdicts = [_one_run(run, anchors, sha256) for run in with_progress(runs, "run")]
    if len(runs) == 1 and not links:
        return verdicts[0]
    names = [str(run.relative_to(path)) for run in runs]
    findings = [Finding("not-regular", str(link.relative_to(path)), "is a link to a run, which is not verified") for link in links]
    for name, verdict in zip(names, verdicts, strict=True):
        findings += [replace(finding, file=f"{name}/{finding.file}") for finding in verdict.findings]
    files = [replace(file, file=f"{name}/{file.file}") for name, verdict in zip(names, verdicts, strict=True) for file in verdict.files]
    return Verdict(str(path), "", tuple(findings), tuple(files), runs=len(runs))
