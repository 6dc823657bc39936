"""What reading back costs: one step's slice against a memory map of the same bytes, and opening runs of few and many epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from shutil import rmtree
from statistics import median

import h5py
import numpy as np

import probes
from benchmarks.row import Row
from benchmarks.turns import by_turns, interval, ratios, seconds
from probes.clock import SeriesKey
from probes.journal.writer import Journal
from probes.run_directory.seal import JournalSealer
from probes.signature import Descriptor

KEY = SeriesKey("acts", "block", "output", "train")
MIB = 1 << 20
TOTAL = 2048  # MiB
TURNS = 400
TOPIC = "Reading"
SLICE = (
    "The file is read by place, since a map ends the process if the file is cut off or its disk fails; of 1 MiB this takes about "
    "30 us longer. The rest is Python that finds the step."
)


def record(directory: Path, epochs: int, steps: int, size: int) -> Path:
    directory.mkdir(parents=True)
    (directory / "run.json").write_text("{}", encoding="utf-8")
    values = np.random.default_rng(0).normal(size=size // 4).astype("<f4")
    seals = JournalSealer(directory)
    for epoch in range(epochs):
        path = directory / f"epoch-{epoch:04d}.journal"
        journal = Journal.create(path, {"run_id": "r", "epoch": epoch, "attempt": 1, "rank": 0, "spec": "", "manifest": {}})
        descriptor = journal.descriptor(Descriptor(KEY, "float32", values.shape, None, {}, {}))
        for step in range(steps):
            journal.add(descriptor, step, 0, 0, 0, values.ctypes.data, values.nbytes)
            journal.commit("train", step, step)
        journal.end(True, "", {})
        seals.seal(path.name)
    return directory


def one(work: Callable[[int], object], places: Iterator[int], held: dict[str, object]) -> float:
    """Seconds of one slice; the one before is held until this one is there, as it mostly is."""
    place = next(places)

    def read() -> None:
        held["slice"] = work(place)

    return seconds(read)


def slices(folder: Path, size: int) -> Iterator[Row]:
    """One step of `size` MiB."""
    steps = TOTAL // size
    directory = record(folder / f"slices-{size}", 1, steps, size * MIB)
    series = probes.open(directory)["acts", "block"]
    path = directory / "epoch-0000.h5"
    with h5py.File(path) as file:
        values = file["captures/acts/block:output/values"]
        mapped = np.memmap(path, "<f4", "r", values.id.get_offset(), values.shape)
        places = np.random.default_rng(1).permutation(steps)[: 64 // size].tolist()
        ways: dict[str, Callable[[int], object]] = {
            "memmap": lambda place: np.array(mapped[place]),
            "sel(step=).numpy()": lambda place: series.sel(step=place).numpy(),
            "series[i].value": lambda place: series[place].value,
            "h5py": lambda place: values[place],
        }
        for work in ways.values():
            for place in places:
                work(place)
        found = by_turns({name: partial(one, work, cycle(places), {}) for name, work in ways.items()}, TURNS // size)
    for name, bar in (("sel(step=).numpy()", ">= 0.9"), ("series[i].value", ">= 0.9"), ("h5py", "")):
        label = f"a step of {size} MiB out of {TOTAL // 1024} GiB, `{name}`, speed relative to a NumPy memmap"
        yield Row(TOPIC, label, ratios(found, "memmap", name), "x", bar, 0.92 if bar else 0.6, SLICE)


def opening(folder: Path) -> Iterator[Row]:
    few, many = record(folder / "few", 10, 2, 64), record(folder / "many", 300, 2, 64)
    found = by_turns({"few": lambda: seconds(lambda: probes.open(few)), "many": lambda: seconds(lambda: probes.open(many))}, 51)
    millis = interval([row["few"] * 1e3 for row in found])
    yield Row(
        TOPIC,
        f"opening a run of 300 epochs, divided by opening one of 10 ({median(millis):.2g} ms)",
        ratios(found, "many", "few"),
        "x",
        "<= 1.1",
        1,
    )


def rows(folder: Path) -> Iterator[Row]:
    for size in (1, 8):
        yield from slices(folder, size)
        rmtree(folder / f"slices-{size}")
    yield from opening(folder)
