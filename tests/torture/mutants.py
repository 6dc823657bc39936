"""A sealed file changed at random, a hundred thousand times: whatever the reader is given, it refuses it or it is the same.

Each batch of mutants is read by a child of its own, so that a crash in the HDF5 library is counted and takes nothing with it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np

from probes.clock import SeriesKey
from tests.torture.nursery import ROOT
from tests.torture.report import Effort, Row

MUTANTS = 100_000
BATCH = 1000
LONGEST = 20.0  # seconds for one mutant, on a machine that does other things too

Mutation = Callable[[bytearray, Random], None]


def rows(effort: Effort) -> Iterator[Row]:
    """One row for a file as it is by default, and one for a compressed one."""
    for compression in ("none", "gzip"):
        with effort.row(f"mutants of a sealed file, compression: {compression}") as row:
            total = effort.count(MUTANTS // 2, 60)
            place = effort.folder / f"mutants-{compression}"
            original = _original(place, compression)
            assert outcome(original, place / "sound", content(original)) == "same", "the file as it was sealed is not found sound"
            batches = [(f"{effort.seed} {start}", min(BATCH, total - start)) for start in range(0, total, BATCH)]
            tally = {"refused": 0, "found": 0, "same": 0, "wrong": 0, "crashed": 0, "hung": 0}
            with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
                for found, problems in pool.map(partial(_batch, original, place), batches):
                    tally = {key: value + found.get(key, 0) for key, value in tally.items()}
                    row.count.problems += problems
            row.trials, row.count.wrong = sum(tally.values()), tally["wrong"]
            found_out = tally["refused"] + tally["found"]
            row.note = f"{found_out:,} found out without a ledger, {tally['same']:,} read the same; {tally['crashed']} crashed the child"
        yield row


def _original(place: Path, compression: str) -> Path:
    """A small sealed file: equal, concatenated and ragged captures, with a manifest as runs have it."""
    from tests.proof.runs import One, write_run

    def source(epoch: int) -> Iterator[One]:
        chance = np.random.default_rng(3)
        for step in range(4):
            yield One(SeriesKey("acts", "fc1", "output", "train"), "float32", chance.standard_normal((2, 3)).astype("<f4"), step)
            yield One(SeriesKey("rows", "fc1", "output", "train"), "float64", chance.standard_normal((step + 1, 4)), step)

    write_run(place, epochs=1, source=source, compression=compression)
    return place / "epoch-0000.h5"


def _batch(original: Path, place: Path, batch: tuple[str, int]) -> tuple[dict[str, int], list[str]]:
    """What became of one batch; a child that dies is replaced, and goes on behind the mutant it died of."""
    seed, count = batch
    tally: dict[str, int] = {}
    problems: list[str] = []
    # In a folder of its own: a ledger next to it would tell every change at once, by the hash of the whole file.
    alone = place / seed.replace(" ", "-") / original.name
    alone.parent.mkdir()
    start = 0
    while start < count:
        child = _Child(original, alone, seed, start, count)
        while (said := child.next()) is not None:
            tally[said["outcome"]] = tally.get(said["outcome"], 0) + 1
            problems += [f"mutant {start} of {seed}: {said['outcome']} {said['why']}"] if said["why"] else []
            start += 1
        if start < count:
            tally[child.death] = tally.get(child.death, 0) + 1
            problems += [f"mutant {start} of {seed} takes more than {LONGEST} s"] if child.death == "hung" else []
            start += 1
    return tally, problems


class _Child:
    """One process that reads mutants."""

    def __init__(self, original: Path, path: Path, seed: str, start: int, count: int) -> None:
        command = [sys.executable, "-m", "tests.torture.mutants", str(original), str(path), seed, str(start), str(count)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.death = "crashed"
        self._began = monotonic()

    def next(self) -> dict[str, Any] | None:
        """What became of the next mutant, or None where the child is gone."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], LONGEST + 10)[0]:
            self.process.kill()
            self.death = "hung"
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process.stdout.close()
            return None
        said: dict[str, Any] = json.loads(line)
        return said


def _flip(data: bytearray, chance: Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _overwrite(data: bytearray, chance: Random) -> None:
    at = chance.randrange(len(data))
    for index in range(at, min(at + chance.randrange(1, 9), len(data))):
        data[index] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])


def _zero(data: bytearray, chance: Random) -> None:
    at = chance.randrange(-(-len(data) // 512)) * 512
    data[at : at + 512] = bytes(len(data[at : at + 512]))


def _cut(data: bytearray, chance: Random) -> None:
    del data[chance.randrange(len(data)) :]


def _swap(data: bytearray, chance: Random) -> None:
    size = chance.choice([8, 64, 512])
    first, second = (chance.randrange(max(len(data) // size, 1)) * size for _ in range(2))
    data[first : first + size], data[second : second + size] = data[second : second + size], data[first : first + size]


def _insert(data: bytearray, chance: Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.randrange(1, 65))


def _several(data: bytearray, chance: Random) -> None:
    for _ in range(chance.randrange(2, 20)):
        _flip(data, chance)


MUTATIONS: tuple[Mutation, ...] = (_flip, _flip, _flip, _overwrite, _overwrite, _zero, _cut, _swap, _insert, _several)


def content(path: Path) -> str:
    """What a reader hands out of a file, as one text; all but the manifest, parts of which the ledger's hash alone covers."""
    from probes.reader.run import open as open_run

    run = open_run(path)
    parts: list[Any] = [run.spec, run.state, run.epochs]
    for series in run.series:
        parts += [series.word, series.dtype, series.dims, series.attrs, series.clocks.tolist()]
        parts += [[(capture.value.shape, capture.value.tobytes().hex(), capture.clock) for capture in series]]
    return repr(parts)


def outcome(original: Path, place: Path, known: str) -> str:
    """What becomes of a copy that nothing was done to."""
    place.mkdir()
    path = place / original.name
    path.write_bytes(original.read_bytes())
    return _outcome(path, known)[0]


def _outcome(path: Path, original: str) -> tuple[str, str]:
    """What becomes of a mutant: found by `verify`, refused, the same as before, or wrong."""
    from probes.errors import ProbesError
    from probes.proof.verify import verify

    try:
        if not verify(path).ok:
            return "found", ""
        return ("same", "") if content(path) == original else ("wrong", "verified, and is not what was sealed")
    except ProbesError:
        return "refused", ""


def main(original: Path, path: Path, seed: str, start: int, count: int) -> None:
    """Make mutants and say what became of each; the reader's parent is the process that called this one."""
    sound, known = original.read_bytes(), content(original)
    for index in range(start, count):
        chance = Random(f"{seed} {index}")
        data = bytearray(sound)
        chance.choice(MUTATIONS)(data, chance)
        path.write_bytes(data)
        began = monotonic()
        try:
            outcome, why = _outcome(path, known)
        except Exception as error:  # any failure is a finding
            outcome, why = "wrong", f"a traceback: {type(error).__name__}: {error}"
        if monotonic() - began > LONGEST:
            outcome, why = "hung", f"took {monotonic() - began:.0f} s"
        print(json.dumps({"outcome": outcome, "why": why}), flush=True)
    path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
