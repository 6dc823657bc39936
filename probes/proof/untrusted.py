"""Verify in a child process with limits, so that a hostile file can harm only that process."""

from __future__ import annotations

import json
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from probes.clock import SeriesKey
from probes.errors import ProbesError, StorageError
from probes.processes.subprocess_command import answer_line, command, last_answer
from probes.proof.anchor import checked
from probes.proof.finding import CheckedFile, Finding, Verdict
from probes.proof.sandbox.confinement import PROTECTIONS, confine
from probes.proof.verify import verify

EXPECTED = PROTECTIONS
MEMORY = 2 << 30  # the child's own memory; mapped files count in addition, only with their bytes on disk
SECONDS = 60
BYTES_PER_SECOND = 32 << 20  # per byte on disk: 20 times slower than verifying
LONGEST = 3600
STARTING = 30  # for starting the interpreter on a busy machine
MOST_FILES = 100_000
SPARSE = 1 << 20  # a small valid file may use no blocks, on file systems that store it with its name


def verify_untrusted(path: str | Path, *, anchor: str | Sequence[str] | None = None, sha256: bool = False) -> Verdict:
    """Like `verify`, in a child with limited memory and time; the kernel keeps it from files and the network if it can.

    Args:
        path: as for `verify`.
        anchor: as for `verify`.
        sha256: as for `verify`.

    Returns:
        What was found; `crashed` if the child crashed, or took too long, and the note `unconfined` if the kernel did not do its part.

    Raises:
        StorageError: there is nothing there.
        ProbesError: the child refused the request.
    """
    place = Path(path)
    if not place.exists():
        raise StorageError(f'"{place}" does not exist')
    limits = _limits(place)
    request = {"path": str(place), "anchor": checked(anchor), "sha256": sha256, "limits": limits._asdict()}
    words = command("probes.proof.untrusted", json.dumps(request))
    patience = limits.seconds + STARTING
    try:
        done = subprocess.run(
            words, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=patience, start_new_session=True
        )  # a new session has no terminal to write to
    except subprocess.TimeoutExpired:
        return _crashed(place, f"the process that read it did not end within {patience} seconds")
    data = last_answer(done.stdout)
    if done.returncode == 0 and data is not None:
        return _verdict(data)
    if done.returncode == 2:
        raise ProbesError(done.stderr.decode(errors="replace").strip())
    return _crashed(place, _death(done.returncode))


class _ChildLimits(NamedTuple):
    memory: int
    seconds: int


def _limits(path: Path) -> _ChildLimits:
    """The resources that a valid run of this size on disk needs; a sparse file or a link counts with its size on disk."""
    stored = largest = 0
    for one in islice(path.rglob("*") if path.is_dir() else [path], MOST_FILES):
        found = one.lstat() if path.is_dir() else one.stat()
        if stat.S_ISREG(found.st_mode):
            size = min(found.st_size, found.st_blocks * 512 + SPARSE)
            stored, largest = stored + size, max(largest, size)
    return _ChildLimits(MEMORY + largest, min(SECONDS + stored // BYTES_PER_SECOND, LONGEST))


def _crashed(place: Path, why: str) -> Verdict:
    return Verdict(str(place), "", (Finding("crashed", place.name, f"{why}; treat the file as hostile"),), ())


def _death(code: int) -> str:
    if code < 0:
        return f"the process that read it was killed by {signal.Signals(-code).name}"
    return f"the process that read it ended with {code}, perhaps because of the memory limit"


def _verdict(data: dict[str, Any]) -> Verdict:
    findings = [
        Finding(
            one["code"],
            one["file"],
            one["message"],
            SeriesKey(**one["series"]) if one["series"] else None,
            (one["steps"][0], one["steps"][1]) if one["steps"] else None,
        )
        for one in data["findings"]
    ]
    missing = [name for name in EXPECTED if name not in data["confined"]]
    if missing:
        words = f"the kernel did not keep the process that read it from {' and '.join(missing)}"
        findings.append(Finding("unconfined", Path(data["path"]).name, words))
    files = tuple(CheckedFile(**one) for one in data["files"])
    rest = {name: data[name] for name in ("head", "anchored", "alone", "runs", "weights")}
    weights = {int(epoch): found for epoch, found in data["epoch_weights"].items()}
    return Verdict(data["path"], data["run_id"], tuple(findings), files, epoch_weights=weights, **rest)


def _apply(limits: _ChildLimits) -> None:
    """Limit the memory and time of this process, and forbid it to write files."""
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main(request: dict[str, Any]) -> int:
    _apply(_ChildLimits(**request["limits"]))
    confined = confine()
    try:
        verdict = verify(request["path"], anchor=request["anchor"], sha256=request["sha256"])
    except ProbesError as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.buffer.write(answer_line({**verdict.as_dict(), "confined": confined}))
    return 0


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
