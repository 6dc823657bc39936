"""How fast an epoch is sealed, against a copy loop over the same bytes; neither waits for the device."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from benchmarks.row import Row
from benchmarks.turns import interval
from probes.clock import SeriesKey
from probes.digest import file_hex
from probes.journal.writer import Journal
from probes.run_directory import seal as sealing
from probes.run_directory.sealer_process import SealerProcess
from probes.signature import Descriptor

HEAD = {"run_id": "benchmark", "attempt": 1, "rank": 0, "global_step_start": {}, "manifest": {}, "spec": ""}
PIECE = 1 << 20
TOPIC = "Sealing"
COPY = "The copy loop reads and writes once; a seal also digests every capture and puts each series together."
GROUPS = "All but a few tenths of it are the HDF5 library's own calls: a group, eight datasets and seventeen attributes."


class Sealed(NamedTuple):
    """Seconds of one seal: the copy loop, until the last byte is placed, and the hash of the whole file."""

    loop: float
    placed: float
    hashed: float


def journal(directory: Path, epoch: int, series: int, steps: int, nbytes: int) -> Path:
    made = Journal.create(directory / f"epoch-{epoch:04d}.journal", {**HEAD, "epoch": epoch})
    keys = [SeriesKey("acts", f"features.block{number}.conv", "output", "train") for number in range(series)]
    attrs = {"hook": "forward", "module": "torch.nn.modules.conv.Conv2d"}
    numbers = [made.descriptor(Descriptor(key, "float32", (nbytes // 64, 16), None, {}, attrs)) for key in keys]
    memory = ctypes.create_string_buffer(os.urandom(nbytes))
    address = ctypes.addressof(memory)
    for step in range(steps):
        for number in numbers:
            made.add(number, step, 0, 0, 0, address, nbytes)
        made.commit("train", step, step)
    made.end(True, "", {})
    return made.path


def copied(source: Path) -> float:
    """A read/write loop over the journal, both files warm, no sync."""
    target = source.with_suffix(".copy")
    piece = memoryview(bytearray(PIECE))
    began = perf_counter()
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
        while size := read.readinto(piece):
            write.write(piece[:size])
    taken = perf_counter() - began
    target.unlink()
    return taken


def sealed(folder: Path, series: int, steps: int, nbytes: int) -> Sealed:
    directory = folder / "run"
    directory.mkdir()
    source = journal(directory, 0, series, steps, nbytes)
    os.sync()
    loop = copied(source)
    os.sync()
    points: dict[str, float] = {}
    began = perf_counter()
    result = sealing.seal(source, directory, None, lambda point: points.setdefault(point, perf_counter() - began))
    hashing = perf_counter()
    file_hex(directory / result.file)
    hashed = perf_counter() - hashing
    shutil.rmtree(directory)
    return Sealed(loop, points["transferred"], hashed)


def child(folder: Path, epochs: int = 40) -> list[float]:
    """Milliseconds from handing over a journal of 20 captures in 5 series until its result is there."""
    directory = folder / "child"
    directory.mkdir()
    sealer, times = SealerProcess(directory), []
    for epoch in range(epochs):
        source = journal(directory, epoch, 5, 4, 6400)
        began = perf_counter()
        sealer.submit(source)
        while not sealer.poll():
            sealer._receive(None)
        times.append((perf_counter() - began) * 1e3)
    sealer.drain()
    return times[1:]  # the first waits for the child to start


def synced(folder: Path) -> float:
    """Milliseconds that the device takes for what a seal waits for: the file, the ledger, and the names of both."""
    began = perf_counter()
    for name, content in (("file", bytes(170_000)), ("ledger", bytes(1000))):
        with (folder / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        place = os.open(folder, os.O_RDONLY)
        os.fsync(place)
        os.close(place)
    return (perf_counter() - began) * 1e3


def rows(folder: Path) -> Iterator[Row]:
    for series, repeats in ((8, 3), (200, 5)):
        found = [sealed(folder, series, 1000 // series, 1 << 20) for _ in range(repeats)]
        without, whole = (interval([one.loop / taken(one) for one in found]) for taken in (_placed, _hashed))
        yield Row(TOPIC, f"1 GB in {series} series, speed relative to a copy loop", without, "x", ">= 0.5", 0.55, COPY)
        yield Row(
            TOPIC,
            f"1 GB in {series} series, with the hash of the whole file, speed relative to a copy loop",
            whole,
            "x",
            ">= 0.35",
            0.4,
            COPY,
        )
    found = [sealed(folder, 5000, 20, 10_240)]
    yield Row(
        TOPIC,
        "1 GB in 5,000 series of 20 captures, time per series",
        interval([one.placed / 5 for one in found]),
        "ms",
        "<= 2",
        1.8,
        GROUPS,
    )
    found = [sealed(folder, 200, 5000, 1024)]
    yield Row(
        TOPIC,
        "10⁶ captures of 1 KiB, speed relative to a copy loop",
        interval([one.loop / one.placed for one in found]),
        "x",
        ">= 0.3",
        0.35,
    )
    floor = interval([synced(folder) for _ in range(20)])
    note = f"Writing and syncing as many files of that size as one seal does takes {floor.median:.0f} ms by itself."
    yield Row(TOPIC, "an epoch of 20 small captures", interval(child(folder)), "ms", "<= 30", 25, note)


def _placed(one: Sealed) -> float:
    return one.placed


def _hashed(one: Sealed) -> float:
    return one.placed + one.hashed
