"""How fast `verify` is, in times of reading a file once and hashing it with BLAKE3 in plain Python on one thread.

Usage: python benchmarks/verify.py [DIRECTORY]

All variants alternate, over a warm cache; the median of the ratios within a turn is printed. 1 is as fast as reading and hashing
once. `content`: a file without its ledger, each capture against its digest. `whole`: with the ledger, so that the file is
hashed as a whole too. Then the memory of `verify`, and of `diff` of two runs that differ everywhere.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from blake3 import blake3

import probes
from probes.clock import SeriesKey
from probes.journal.writer import Journal
from probes.run_directory.seal import JournalSealer
from probes.signature import Descriptor

MIB = 1 << 20
TURNS = 9
FILE = "epoch-0000.h5"
PEAK = """
import re, sys
from pathlib import Path
from probes.proof.verify import verify
from probes.proof.diff import diff
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
verify(sys.argv[2]) if sys.argv[1] == "verify" else diff(sys.argv[2], sys.argv[3])
print(peak() // 1024)
"""


def record(directory: Path, total: int, size: int, seed: int = 0) -> Path:
    """A run of one epoch with captures of one size."""
    directory.mkdir(parents=True)
    path = directory / "epoch-0000.journal"
    values = np.random.default_rng(seed).standard_normal(size // 4).astype("<f4")
    journal = Journal.create(path, {"run_id": "r", "epoch": 0, "attempt": 1, "rank": 0, "spec": "", "manifest": {}})
    descriptor = journal.descriptor(Descriptor(SeriesKey("acts", "block", "output", "train"), "float32", values.shape, None, {}, {}))
    for step in range(total // size):
        values[0] = step
        journal.add(descriptor, step, 0, 0, 0, values.ctypes.data, values.nbytes)
        journal.commit("train", step, step)
    journal.end(True, "", {})
    JournalSealer(directory).seal(path.name)
    return directory


def plain(path: Path) -> None:
    """Read a file and hash it."""
    hasher, piece = blake3(), memoryview(bytearray(MIB))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(piece):
            hasher.update(piece[:size])


def seconds(work: Callable[[Path], object], path: Path) -> float:
    began = perf_counter()
    work(path)
    return perf_counter() - began


def speed(directory: Path, total: int, size: int) -> tuple[float, float]:
    """The speed of `verify` without and with the ledger, in times of that of reading and hashing once."""
    run = record(directory / f"of-{size}", total, size)
    alone = directory / f"alone-{size}"
    alone.mkdir()
    (alone / FILE).hardlink_to(run / FILE)
    content, whole = [], []
    for turn in range(TURNS + 1):
        base = seconds(plain, run / FILE)
        found = base / seconds(probes.verify, alone / FILE), base / seconds(probes.verify, run / FILE)
        if turn:
            content.append(found[0])
            whole.append(found[1])
    return median(content), median(whole)


def memory(directory: Path, total: int) -> dict[str, int]:
    """The most memory in MiB that `verify` of a run and `diff` of two that differ take."""
    needed = {}
    a, b = record(directory / "a", total, MIB), record(directory / "b", total, MIB, seed=1)
    for words in (["verify", a], ["diff", a, b]):
        done = subprocess.run([sys.executable, "-c", PEAK, *map(str, words)], capture_output=True, text=True, check=True)
        needed[str(words[0])] = int(done.stdout)
    return needed


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        for of in (4 << 10, 64 << 10, MIB, 16 * MIB):
            content, whole = speed(place, 256 * MIB, of)
            print(f"captures of {of >> 10:5} KiB  content {content:.2f} (bar 0.7)  whole {whole:.2f} (bar 0.5)")
        for verb, needed in memory(place, 1024 * MIB).items():
            print(f"{verb:6} of runs of 1 GiB: {needed} MiB of memory at most (bar 300)")
    finally:
        shutil.rmtree(place)
