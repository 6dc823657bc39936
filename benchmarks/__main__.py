"""Measure everything, write `figures.json`, the page of costs and the lines of the README.

Usage: python -m benchmarks [TOPIC...]     (with topics, the rows are only printed; BENCHMARK_SHARE=0.1 takes a tenth of the turns)
       python -m benchmarks --add TOPIC...  (put the rows of some topics into what was measured before, with their own date and load)
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import h5py
import numpy
import torch

from benchmarks.row import Row
from benchmarks.table import FIGURES, section, write

TOPICS = (
    "hooks",
    "operations",
    "inside",
    "around",
    "rivals",
    "gradient",
    "journal",
    "protection",
    "stats",
    "job",
    "seal",
    "reader",
    "growth",
    "start",
)


def machine() -> dict[str, str]:
    """What the figures were measured on and with."""
    names = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}",
        "load": f"{os.getloadavg()[0]:.1f}",
        "Linux": platform.release().partition("-")[0],
        "Python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "h5py": h5py.__version__,
        "numpy": numpy.__version__,
    }


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def measured(topics: list[str]) -> Iterator[Row]:
    """The rows of some topics, one after the other, told on stderr as they come."""
    for topic in topics:
        began = perf_counter()
        rows: Callable[[Path], Iterator[Row]] = import_module(f"benchmarks.{topic}").rows
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
            for row in rows(Path(folder)):
                low, median, high = row.figure
                print(f"{topic:9} {row.what:70} {median:9.3g} {row.unit} [{low:.3g} .. {high:.3g}] {row.bar}", file=sys.stderr)
                yield row
        print(f"{topic:9} took {perf_counter() - began:.0f} s", file=sys.stderr)


def _added(new: dict[str, Any]) -> dict[str, Any]:
    """What was measured before, with new rows in the place of those of the same headings."""
    about = new["machine"]
    said = f" (measured on {about['date']}, load {about['load']})"
    rows = [{**row, "topic": row["topic"] + said} for row in new["rows"]]
    headings = {row["topic"].partition(",")[0].partition(" (")[0] for row in rows}
    before = json.loads(FIGURES.read_text(encoding="utf-8"))
    kept = [row for row in before["rows"] if row["topic"].partition(",")[0].partition(" (")[0] not in headings]
    return {**before, "rows": kept + rows}


def main() -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    add, topics = "--add" in sys.argv, [word for word in sys.argv[1:] if word != "--add"]
    unknown = [topic for topic in topics if not Path(__file__).with_name(f"{topic}.py").exists()]
    if unknown:
        sys.exit(f"{__doc__}\nno topic is called {unknown[0]}; topics: {', '.join(TOPICS)}")
    rows = [row.as_dict() for row in measured(topics or list(TOPICS))]
    figures = {"machine": machine(), "rows": rows}
    if add:
        figures = _added(figures)
    elif topics:
        print(section(figures))
        return
    FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write()


if __name__ == "__main__":
    main()
