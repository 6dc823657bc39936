"""Verifying in a child process with limits, so that a hostile file can take down no more than that."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from probes.clock import SeriesKey
from probes.errors import ProbesError, StorageError
from probes.proof.finding import CheckedFile, Finding, Verdict
from probes.proof.verify import verify
from probes.run_directory.subprocess_command import command

MEMORY = 2 << 30  # beyond the largest file, which is mapped into memory
SECONDS_PER_GIB = 30


def verify_untrusted(path: str | Path, *, anchor: str | None = None, sha256: bool = False) -> Verdict:
    """Like `verify`, in a child that may not write, and has only so much memory and time.

    Args:
        path: as for `verify`.
        anchor: as for `verify`.
        sha256: as for `verify`.

    Returns:
        What was found; `crashed` where the child died.

    Raises:
        StorageError: there is nothing there.
        ProbesError: the child refused the request.
    """
    place = Path(path)
    if not place.exists():
        raise StorageError(f'"{place}" does not exist')
    request = {"path": str(place), "anchor": anchor, "sha256": sha256}
    done = subprocess.run(command("probes.proof.untrusted", json.dumps(request)), capture_output=True, check=False)
    if done.returncode == 0:
        return _verdict(json.loads(done.stdout))
    if done.returncode == 2:
        raise ProbesError(done.stderr.decode(errors="replace").strip())
    return Verdict(str(place), "", (Finding("crashed", place.name, f"{_death(done.returncode)}; treat the file as hostile"),), ())


def _death(code: int) -> str:
    if code < 0:
        return f"the process that read it was killed by {signal.Signals(-code).name}"
    return f"the process that read it ended with {code}, for want of memory or worse"


def _verdict(data: dict[str, Any]) -> Verdict:
    findings = tuple(
        Finding(
            one["code"],
            one["file"],
            one["message"],
            SeriesKey(**one["series"]) if one["series"] else None,
            (one["steps"][0], one["steps"][1]) if one["steps"] else None,
        )
        for one in data["findings"]
    )
    files = tuple(CheckedFile(**one) for one in data["files"])
    return Verdict(data["path"], data["run_id"], findings, files, data["head"], data["anchored"])


def _limit(path: Path) -> None:
    """Allow this process so much memory and time as an honest file needs, and no file to be written."""
    sizes = [one.stat().st_size for one in (path.glob("*") if path.is_dir() else [path]) if one.is_file()]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + max(sizes, default=0),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (60 + SECONDS_PER_GIB * (sum(sizes) >> 30),) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main(request: dict[str, Any]) -> int:
    _limit(Path(request["path"]))
    try:
        verdict = verify(request["path"], anchor=request["anchor"], sha256=request["sha256"])
    except ProbesError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(verdict.as_dict()))
    return 0


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
