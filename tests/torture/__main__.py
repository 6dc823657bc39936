"""`python -m tests.torture`: one table of what was done to runs and what became of them; see `--help`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from tests.torture import shim
from tests.torture.nursery import Nurseries
from tests.torture.report import MOST_PROBLEMS, Effort, Row, save, text

FAULTS = (
    "kills",
    "power_loss",
    "full_disk",
    "quota",
    "failing_disk",
    "sealer_trouble",
    "exits",
    "races",
    "ranks",
    "generated",
    "crafted",
    "mutants",
    "strangers",
    "heads",
    "million",
    "small_memory",
)


def main() -> int:
    """Run the faults one after the other, and print and save the table."""
    asked = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="torture-", dir=asked.folder))
    rows: list[Row] = []
    try:
        with Nurseries(folder, shim.build(folder), asked.jobs) as nurseries:
            effort = Effort(asked.seed, asked.n, folder, nurseries)
            for name in asked.only or FAULTS:
                for row in faults(name)(effort):
                    rows.append(row)
                    if asked.json:
                        save(asked.json, rows, asked.seed, asked.n)
                    print(text([row]).splitlines()[1], file=sys.stderr, flush=True)
                    for problem in row.count.problems[:MOST_PROBLEMS]:
                        print(f"    {problem}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {asked.seed}, N {asked.n:g}, {sum(row.seconds for row in rows) / 60:.0f} minutes\n\n{text(rows)}")
    return 0 if all(row.ok for row in rows) else 1


def faults(name: str) -> Callable[[Effort], Iterator[Row]]:
    """What does one kind of fault, by the name of its module."""
    found: Callable[[Effort], Iterator[Row]] = import_module(f"tests.torture.{name}").rows
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Let all go wrong that can, and count what is lost.")
    parser.add_argument("--seed", type=int, default=0, help="what chance is drawn from")
    parser.add_argument("--n", type=float, default=1.0, help="share of the full number of trials; 2 for twice as many")
    parser.add_argument("--only", action="append", choices=FAULTS, help="one kind of fault; may be repeated")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2)), help="trials at a time")
    parser.add_argument("--json", type=Path, help="write the table there too")
    in_memory = Path("/dev/shm")
    parser.add_argument("--folder", type=Path, default=in_memory if in_memory.is_dir() else None, help="where to write")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
