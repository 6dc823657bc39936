"""What a large capture costs where it is seen, in the hook: against `os.write` of the same bytes, and against h5py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import h5py
import numpy as np
import torch

from benchmarks.row import Row
from benchmarks.turns import by_turns, ratios
from probes.clock import SeriesKey
from probes.journal.record import HEADER_BYTES, extent_place
from probes.journal.writer import Journal, memory
from probes.signature import Descriptor

TOTAL = 64 << 20
TURNS = 21
HEAD = {"run_id": "benchmark", "epoch": 0}
TOPIC = "Large capture, committed"


class Large:
    """The ways to bring 64 MiB in captures of one size into a file."""

    def __init__(self, folder: Path, values: torch.Tensor) -> None:
        self.folder = folder
        self.values = values
        self.address, self.nbytes = values.data_ptr(), values.nbytes
        self.count = TOTAL // values.nbytes
        self.source = memory(self.address, self.nbytes)

    def written(self) -> float:
        """One `os.write` a capture, to a new file."""
        path = self.folder / "plain"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        began = perf_counter()
        for _ in range(self.count):
            os.write(file, self.source)
        taken = perf_counter() - began
        os.close(file)
        path.unlink()
        return taken

    def captured(self, spare: Path | None = None) -> float:
        """A journal; with a spare one, which was ended and is to be recycled, written over its bytes."""
        path = self.folder / "large.journal"
        journal = Journal.create(path, HEAD, spare=spare)
        number = journal.descriptor(Descriptor(SeriesKey("p", "layer", "output", "train"), "float32", (self.nbytes // 4,), None, {}, {}))
        began = perf_counter()
        for step in range(self.count):
            journal.add(number, step, 0, 0, 0, self.address, self.nbytes)
        journal.commit("train", 0, 0)
        taken = perf_counter() - began
        journal.end(True, "", {})
        if spare is None:
            path.unlink()
        else:
            path.replace(spare)
        return taken

    def recycled(self) -> float:
        """A journal that takes the place of the one of the turn before, as those of an epoch and the next but one do."""
        return self.captured(self.folder / "spare.journal")

    def placed(self, path: Path) -> float:
        """The system calls of a journal alone: a header and the capture behind it on a page of its own."""
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        header, end = bytes(HEADER_BYTES), 0
        began = perf_counter()
        for _ in range(self.count):
            at = extent_place(end)
            end = at + os.pwritev(file, (header, self.source), at)
        taken = perf_counter() - began
        os.close(file)
        return taken

    def bare(self) -> float:
        taken = self.placed(self.folder / "bare")
        (self.folder / "bare").unlink()
        return taken

    def over(self) -> float:
        """Over pages that are in memory, and on the device, as those of a journal are that was ended."""
        path = self.folder / "over"
        if path.exists():
            with path.open("r+b") as file:
                os.fdatasync(file.fileno())
        return self.placed(path)

    def appended(self) -> float:
        """Appending to a chunked h5py dataset."""
        path, values = self.folder / "rival.h5", self.values.numpy()
        with h5py.File(path, "w") as file:
            data = file.create_dataset("0", (0, len(values)), maxshape=(None, len(values)), chunks=(1, len(values)), dtype=np.float32)
            began = perf_counter()
            for _ in range(self.count):
                data.resize(len(data) + 1, axis=0)
                data[-1] = values
            taken = perf_counter() - began
        path.unlink()
        return taken


def rows(folder: Path) -> Iterator[Row]:
    for nbytes, size, bar in ((1 << 20, "1 MiB", 2.5), (8 << 20, "8 MiB", 2)):
        ways = Large(folder, torch.randn(nbytes // 4))
        ways.recycled()  # there is none yet, so this makes it
        found = by_turns({name: getattr(ways, name) for name in ("written", "captured", "recycled", "bare", "over", "appended")}, TURNS)
        fresh, again = ratios(found, "captured", "written"), ratios(found, "recycled", "written")
        bare, over, rival = ratios(found, "bare", "written"), ratios(found, "over", "written"), ratios(found, "appended", "captured")
        plain = ratios(found, "appended", "written")
        yield Row(
            TOPIC,
            f"{size}, to a new journal, divided by os.write of the same bytes to a new file",
            fresh,
            "x",
            "<= 1.1",
            1.05,
            _floor(size, "to a new file", bare),
        )
        yield Row(
            TOPIC,
            f"{size}, to a recycled journal, divided by the same",
            again,
            "x",
            "<= 0.8",
            0.85,
            _floor(size, "over pages in memory", over),
        )
        note = f"`os.write` of {size} itself is {plain.median:.2f} times cheaper than the append."
        yield Row(TOPIC, f"{size}, h5py append, divided by a capture with `probes`", rival, "x", f">= {bar}", bar, note)


def _floor(size: str, where: str, floor: tuple[float, float, float]) -> str:
    return (
        f"The measured minimum is {floor[1]:.2f} ({floor[0]:.2f} to {floor[2]:.2f}): the `pwritev` of a header and {size} alone, {where}, "
        "without any code of `probes`."
    )
