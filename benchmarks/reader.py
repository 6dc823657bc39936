"""What reading back costs: one step's slice against a numpy memory map of the same bytes, and opening runs of many epochs.

python benchmarks/reader.py [DIRECTORY]
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import h5py
import numpy as np

import probes
from probes.clock import SeriesKey
from probes.store.journal import Journal
from probes.store.seal import Seals

KEY = SeriesKey("acts", "block", "output", "train")
MIB = 1 << 20


def record(directory: Path, epochs: int, steps: int, size: int) -> Path:
    directory.mkdir(parents=True)
    values = np.random.default_rng(0).normal(size=size // 4).astype("<f4")
    seals = Seals(directory)
    for epoch in range(epochs):
        path = directory / f"epoch-{epoch:04d}.journal"
        journal = Journal.create(path, {"run_id": "r", "epoch": epoch, "attempt": 1, "rank": 0, "spec": "", "manifest": {}})
        descriptor = journal.descriptor(KEY, "float32", values.shape, None, {}, {})
        for step in range(steps):
            journal.add(descriptor, step, 0, 0, 0, values.ctypes.data, values.nbytes)
            journal.commit("train", step, step)
        journal.end(True, "", {})
        seals.seal(path.name)
    return directory


def microseconds(work: Callable[[int], object], places: np.ndarray) -> float:
    for place in places:
        work(int(place))
    times = []
    for _ in range(5):
        began = perf_counter()
        for place in places:
            work(int(place))
        times.append((perf_counter() - began) / len(places))
    return median(times) * 1e6


def slices(directory: Path, total: int) -> None:
    run = probes.open(record(directory, 1, total // MIB, MIB))
    series = run["acts", "block"]
    path = directory / "epoch-0000.h5"
    with h5py.File(path) as file:
        values = file["captures/acts/block:output/values"]
        shape, offset = values.shape, values.id.get_offset()
    mapped = np.memmap(path, "<f4", "r", offset, shape)
    places = np.random.default_rng(1).permutation(total // MIB)[:200]
    raw = microseconds(lambda place: np.array(mapped[place]), places)
    print(f"one step of 1 MiB out of {total // MIB} MiB, warm")
    print(f"  numpy memmap, copied      {raw:8.0f} us")
    found = {
        "series[step].value": lambda place: series[place].value,
        "series.sel(step=).numpy()": lambda place: series.sel(step=place).numpy(),
    }
    for name, work in found.items():
        taken = microseconds(work, places)
        print(f"  {name:25} {taken:8.0f} us  {raw / taken:.2f} of memmap")
    with h5py.File(path) as file:
        values = file["captures/acts/block:output/values"]
        taken = microseconds(lambda place: values[place], places)
        print(f"  {'h5py':25} {taken:8.0f} us  {raw / taken:.2f} of memmap")


def opening(directory: Path, epochs: int) -> None:
    record(directory, epochs, 2, 64)

    def timed(work: Callable[[], object]) -> float:
        times = []
        for _ in range(5):
            began = perf_counter()
            work()
            times.append(perf_counter() - began)
        return median(times) * 1e3

    first = timed(lambda: probes.open(directory))
    listed = timed(lambda: probes.open(directory).epochs)
    one = timed(lambda: probes.open(directory).sel(epoch=epochs - 1)["acts", "block"].numpy())
    every = timed(lambda: probes.open(directory)["acts", "block"].numpy())
    print(f"{epochs:5} epochs: open {first:.2f} ms, epochs {listed:.1f} ms, one epoch's values {one:.1f} ms, all values {every:.0f} ms")


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    try:
        slices(directory / "slices", 512 * MIB)
        for epochs in (10, 1000):
            opening(directory / f"epochs-{epochs}", epochs)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
