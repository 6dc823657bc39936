"""An epoch larger than the memory that its sealer may take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from probes.reader.run import open as open_run
from tests.reader.recorded import KEY, Recording
from tests.torture.nursery import ROOT
from tests.torture.report import Effort, Row

EPOCH = 600 << 20
LARGE = 1 << 20
PROGRAM = """
import json, resource, sys
from pathlib import Path
import probes.run_directory.seal
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
probes.run_directory.seal.seal(Path(sys.argv[1]), Path(sys.argv[2]))
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def rows(effort: Effort) -> Iterator[Row]:
    """One row: half of the epoch in large captures, half of it in small ones."""
    size = effort.count(EPOCH, 320 << 20)
    limit = size // 2
    run = effort.folder / "small-memory"
    with effort.row(f"sealing {size >> 20} MiB with {limit >> 20} MiB of memory") as row:
        recording = Recording(run)
        count = size // 2 // LARGE
        for step in range(count):
            recording.take(np.full(LARGE // 8, step, "<f8"), step=step)
            for layer in range(64):
                recording.take(np.full(LARGE // 8 // 64, step, "<f8"), key=KEY._replace(target=f"small{layer}"), step=step)
        journal = recording.left(ended=True)
        program = [sys.executable, "-c", PROGRAM, str(journal), str(run), str(limit)]
        done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
        row.trials = 1
        row.count.acknowledged = count * 65
        if done.returncode:
            row.count.problems.append(done.stderr[-1000:])
            row.count.lost = row.count.acknowledged
        else:
            series = open_run(run).series
            row.count.lost = row.count.acknowledged - sum(map(len, series))
            row.count.wrong = sum(int((capture.value != capture.clock.step).any()) for one in series for capture in one)
            row.note = f"the sealer took {int(done.stdout) >> 10} MiB in all, its imports and mapped pages included"
    yield row
