"""Processes that are not children of the tests."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended may be listed until its parent asks for its exit status."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def until_gone(pid: int, seconds: float = 60.0) -> None:
    """Wait until a process has ended."""
    deadline = monotonic() + seconds
    while runs(pid):
        assert monotonic() < deadline, f"process {pid} still runs after {seconds:g} seconds"
        sleep(0.01)


def sealers(directory: Path | str) -> list[int]:
    """The sealers of a run that work at the moment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = entry.read_bytes().split(b"\0")
            if b"probes.run_directory.seal" in words and os.fsencode(Path(directory).resolve()) in words:
                found.append(int(entry.parent.name))
    return found
