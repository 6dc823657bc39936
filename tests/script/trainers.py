"""Scripts of trainers, each in a process of its own, as a user would start them."""

from __future__ import annotations

import os
from pathlib import Path

import probes
from probes.reader.run import RunReader
from tests.warm import programs


def run(folder: Path, script: str, spec: str) -> RunReader:
    """What `probes run` captures of a script."""
    (folder / "train.py").write_text(script)
    (folder / "probe.yaml").write_text(spec)
    command = ("-m", "probes", "run", "--out", "run", "probe.yaml", "train.py")
    done = programs.run(*command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return probes.open(folder / "run")
