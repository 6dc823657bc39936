"""How fast an epoch is sealed, against a copy loop over the same bytes.

`python benchmarks/seal.py [CASE...]` prints one JSON line for each case; cases: large, wide, series, small, child.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from probes.clock import SeriesKey
from probes.digest import file_hex
from probes.store import seal as sealing
from probes.store.journal import Journal
from probes.store.sealer import Sealer

HEAD = {"run_id": "benchmark", "attempt": 1, "rank": 0, "global_step_start": {}, "manifest": {}, "spec": ""}
PIECE = 1 << 20


def journal(directory: Path, epoch: int, series: int, steps: int, nbytes: int) -> Path:
    made = Journal.create(directory / f"epoch-{epoch:04d}.journal", {**HEAD, "epoch": epoch})
    keys = [SeriesKey("acts", f"features.block{number}.conv", "output", "train") for number in range(series)]
    attrs = {"hook": "forward", "module": "torch.nn.modules.conv.Conv2d"}
    shape = (nbytes // 64, 16)
    numbers = [made.descriptor(key, "float32", shape, None, {}, attrs) for key in keys]
    memory = ctypes.create_string_buffer(os.urandom(nbytes))
    address = ctypes.addressof(memory)
    for step in range(steps):
        for number in numbers:
            made.add(number, step, 0, 0, 0, address, nbytes)
        made.commit("train", step, step)
    made.end(True, "", {})
    return made.path


def copy_seconds(source: Path) -> float:
    """A read/write loop over the journal, both files warm, no sync."""
    target = source.with_suffix(".copy")
    piece = memoryview(bytearray(PIECE))
    began = perf_counter()
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
        while size := read.readinto(piece):
            write.write(piece[:size])
    seconds = perf_counter() - began
    target.unlink()
    return seconds


def case(name: str, series: int, steps: int, nbytes: int, repeats: int = 1) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
        for _ in range(repeats):
            directory = Path(folder) / "run"
            directory.mkdir()
            source = journal(directory, 0, series, steps, nbytes)
            os.sync()
            loop = copy_seconds(source)
            os.sync()
            points: dict[str, float] = {}
            began = perf_counter()
            result = sealing.seal(
                source, directory, None, lambda point, points=points, began=began: points.update({point: perf_counter() - began})
            )  # type: ignore[misc]
            seconds = perf_counter() - began
            hashing = perf_counter()
            file_hex(directory / result.file)
            hashing = perf_counter() - hashing
            print(
                json.dumps(
                    {
                        "case": name,
                        "series": series,
                        "captures": result.captures,
                        "bytes": result.bytes,
                        "copy_loop_s": round(loop, 3),
                        "seal_s": round(seconds, 3),
                        "points_s": {point: round(at, 3) for point, at in points.items()},
                        "ratio_without_hash_and_sync": round(loop / points["transferred"], 3),
                        "ratio_with_hash_without_sync": round(loop / (points["transferred"] + hashing), 3),
                        "ratio_all": round(loop / seconds, 3),
                        "laid_out_ms_a_series": round(points["laid out"] / series * 1e3, 3),
                    }
                ),
                flush=True,
            )
            shutil.rmtree(directory)


def child(epochs: int = 50) -> None:
    """Time from handing over a journal of 20 captures in 5 series until its result is there, with the child running."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
        directory = Path(folder)
        sealer, times = Sealer(directory), []
        for epoch in range(epochs):
            source = journal(directory, epoch, 5, 4, 6400)
            began = perf_counter()
            sealer.submit(source)
            while not sealer.poll():
                sealer._receive(None)
            times.append((perf_counter() - began) * 1e3)
        sealer.drain()
        print(
            json.dumps(
                {
                    "case": "child",
                    "first_ms": round(times[0], 1),
                    "median_ms": round(median(times[1:]), 1),
                    "max_ms": round(max(times[1:]), 1),
                }
            )
        )


CASES = {
    "large": lambda: case("large", 8, 128, 1 << 20),
    "wide": lambda: case("wide", 200, 5, 1 << 20),
    "series": lambda: case("series", 5000, 20, 10_240),
    "small": lambda: case("small", 200, 5000, 1024),
    "child": child,
}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or CASES:
        CASES[wanted]()
