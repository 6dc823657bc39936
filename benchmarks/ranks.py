"""What a rank adds to a run: files, bytes, the start, `ls`, `verify` and `diff`.

Usage: python -m benchmarks.ranks [WORLD...]     (by default 1 4 8 16; prints a line of JSON for each)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import probes
from tests.warm import programs

PROGRAM = """
import os, sys, time
import torch
from torch import nn
import probes

rank, out = int(os.environ["RANK"]), sys.argv[1]
model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(25)])
norms = [{"kind": "norm"}]
spec = {"version": 1, "name": "r", "probes": {
    "acts": {"modules": ["**"], "values": ["output"], "transforms": norms},
    "weights": {"hook": "tensor", "tensors": ["**"], "values": ["data"], "transforms": norms},
}}
began = time.perf_counter()
run = probes.attach(model, spec, out=out)
print(time.perf_counter() - began)
with run:
    for epoch in run.epochs(2):
        for x in run.steps([torch.ones(3, 8)] * 20):
            model(x)
"""


def launch(out: Path, world: int) -> float:
    """Run a launch of 2 epochs of 20 steps, of 76 series on each rank; the longest start in seconds."""
    about = {**os.environ, "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": out.name}
    with ThreadPoolExecutor(world) as pool:
        ranks = [pool.submit(programs.run, "-c", PROGRAM, out, env={**about, "RANK": str(rank)}) for rank in range(world)]
        return max(float(rank.result().stdout) for rank in ranks)


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """The shortest of a few times, in seconds of this process's CPU: what else runs on the machine does not count."""
    found = []
    for _ in range(times):
        began = process_time()
        work()
        found.append(process_time() - began)
    return round(min(found), 3)


def listed(out: Path) -> None:
    """What `probes ls` asks of a run."""
    run = probes.open(out)
    run.read_ahead()
    about = [run.outlines, run.state, run.not_shown, run.events, run.verdicts, run.missing, run.launches]
    assert all(part is not None for part in about)


def opened(out: Path) -> None:
    """Every series of a run, which `ls` leaves closed."""
    run = probes.open(out)
    run.read_ahead()
    assert all(series.signature for series in run.series)


def row(folder: Path, world: int) -> dict[str, float]:
    """The figures of a world."""
    one, other = folder / f"one-{world}", folder / f"other-{world}"
    start = launch(one, world)
    launch(other, world)
    files = list(one.iterdir())
    return {
        "world": world,
        "start": round(start, 3),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "state": seconds(lambda: probes.open(one).state),
        "ls": seconds(lambda: listed(one)),
        "series": seconds(lambda: opened(one)),
        "verify": seconds(lambda: probes.verify(one), 2),
        "diff": seconds(lambda: probes.diff(one, other, bitwise=True), 2),
    }


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        launch(Path(place) / "warm", 1)
        for number in map(int, sys.argv[1:] or ("1", "4", "8", "16")):
            print(json.dumps(row(Path(place), number)), flush=True)
