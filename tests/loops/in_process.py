"""Sealing in this process, where hundreds of short runs would each wait for a fresh interpreter.

`python -m tests.loops.in_process ARGUMENTS...` is `probes ARGUMENTS...`, sealed so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import probes.cli
from probes.run_directory.seal import seal
from probes.run_directory.sealer_process import SealerProcess


@contextmanager
def sealing_here() -> Iterator[None]:
    """Let each journal be sealed by a call, at once; what is sealed is the same."""

    def submit(sealer: SealerProcess, journal: Path, options: Mapping[str, Any] | None = None) -> None:
        sealer._finished.append(seal(journal, sealer.directory, {**(options or {}), "spare": False}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SealerProcess, "submit", submit)
        patch.setattr(os, "fsync", lambda descriptor: None)  # no power is lost here, and a test would wait for hundreds of them
        patch.setattr(os, "fdatasync", lambda descriptor: None)
        yield


if __name__ == "__main__":
    with sealing_here():
        probes.cli.main()
