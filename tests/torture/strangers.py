"""Files of strangers, changed at random a million times: whatever is in them, reading ends in a value or in an error of ours, and soon.

Each part is read by a child of its own, so that a crash of the process is counted and takes nothing with it.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.torture.nursery import ROOT
from tests.torture.report import Effort, Row

CASES = {
    "specs": 350_000, "ledgers": 180_000, "manifests": 180_000, "journals": 90_000, "files": 20_000, "closings": 6_000, "chunks": 6_000,
    "launches": 60_000, "claims": 50_000, "anchors": 48_000, "verbs": 10_000,
}  # fmt: skip
PARTS = 5_000  # cases of one child, which then begins with fresh memory
HUNG = 90.0  # seconds without a new case after which a child is killed: what Python code does is stopped after 30


class Part(NamedTuple):
    """What one child reads.

    Attributes:
        kind: of `CASES`.
        start: the first case.
        end: the case after the last.
    """

    kind: str
    start: int
    end: int


def rows(effort: Effort) -> Iterator[Row]:
    """One row."""
    with effort.row("files of strangers, changed at random, read by functions and verbs") as row:
        parts = list(_parts(effort))
        with ThreadPoolExecutor(effort.nurseries.count) as pool:
            for said in pool.map(lambda part: _read(effort.folder, part), parts):
                row.count.problems += said
        row.trials = sum(part.end - part.start for part in parts)
        hung = sum("stopped after" in one or one.endswith(" s") for one in row.count.problems)
        row.note = f"{len(CASES)} kinds; {sum('crashed' in one for one in row.count.problems)} crashes, {hung} took more than 5 s"
    yield row


def _parts(effort: Effort) -> Iterator[Part]:
    """Parts of all kinds; other cases for another seed."""
    for kind, full in CASES.items():
        first = effort.seed * 10_000_000
        end = first + effort.count(full)
        for start in range(first, end, PARTS):
            yield Part(kind, start, min(start + PARTS, end))


def _read(folder: Path, part: Part) -> list[str]:
    """What is wrong with one part; behind a case of which a child dies, another child goes on."""
    problems: list[str] = []
    start = part.start
    while start < part.end:
        place = folder / f"strangers-{part.kind}-{start}"
        place.mkdir()
        (place / "at").write_bytes(bytes(8))
        said, at = _child(place, part._replace(start=start))
        if said is not None:
            return problems + said
        problems.append(f"{part.kind} {at}: the process crashed or hung")
        start = at + 1
    return problems


def _child(place: Path, part: Part) -> tuple[list[str] | None, int]:
    """What a child says, or None where it died; and the case that it was at."""
    command = [sys.executable, "-m", "tests.torture.strangers", str(place), *map(str, part)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    with (place / "at").open("r+b") as file, mmap.mmap(file.fileno(), 8) as shown:
        before, since = -1, time.monotonic()
        while child.poll() is None:
            try:
                child.wait(0.2)
            except subprocess.TimeoutExpired:
                at = int.from_bytes(shown[:], "little")
                before, since = (at, time.monotonic()) if at != before else (before, since)
                if time.monotonic() - since > HUNG:
                    child.kill()
        at = int.from_bytes(shown[:], "little")
    assert child.stdout is not None
    said = child.stdout.read()
    child.stdout.close()
    subprocess.run(["rm", "-rf", str(place)], check=True)
    return (json.loads(said) if child.returncode == 0 else None), max(at, part.start)


def main(place: Path, kind: str, start: int, end: int) -> None:
    """Try cases, and say what is wrong."""
    from tests.proof.fuzz import fuzz, targets

    target = next(one for one in targets(place) if one.name == kind)
    with (place / "at").open("r+b") as file, mmap.mmap(file.fileno(), 8) as shown:

        def at(case: int) -> None:
            shown[:] = case.to_bytes(8, "little")

        problems = fuzz(target, range(start, end), at)
    print(json.dumps(problems), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
