"""The table of the README, out of the figures in `figures.json`.

Usage: python -m benchmarks.table     (writes it between the markers of the README)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.row import SIGNS, Row, from_dict

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIGURES = Path(__file__).with_name("figures.json")
BEGIN, END = "<!-- benchmarks: written by `make bench` -->", "<!-- end of benchmarks -->"
ASKED = ("Alternatives", "Whole job", "Start")  # how the topics begin that stand in the open
COLUMNS = ("measurement", "median", "95 % interval", "goal", "met", "expected")


def section(figures: dict[str, Any]) -> str:
    """The whole section: the machine, what most people ask, and all the rest folded away."""
    rows = [from_dict(row) for row in figures["rows"]]
    asked = [row for row in rows if row.topic.startswith(ASKED)]
    rest = [row for row in rows if row not in asked]
    met, bars = sum(row.met is True for row in rows), sum(row.met is not None for row in rows)
    folded = (
        f"<details>\n<summary>All measurements: {len(rest)} figures; {met} of {bars} goals are met</summary>\n\n{table(rest)}\n</details>\n"
    )
    return f"{_machine(figures['machine'])}\n\n{table(asked)}\n{folded if rest else ''}"


def table(rows: Sequence[Row]) -> str:
    """One table, and the notes on bars that are not met."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---:|---:|---:|---|---:|"]
    topic, notes = "", list[str]()
    for row in rows:
        if row.topic != topic:
            topic = row.topic
            lines.append(f"| **{topic}** |  |  |  |  |  |")
        if row.note and row.note not in notes:
            notes.append(row.note)
        lines.append(_line(row, notes))
    marks = [f"<sup>{number}</sup> {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, "", "  \n".join(marks), ""] if marks else [*lines, ""])


def _machine(machine: dict[str, str]) -> str:
    known = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in ("date", "cpu"))
    return (
        f"Measured on {machine['date']} on {machine['cpu']}; {known}; one torch thread, CPU only. A number without a unit is a "
        "ratio: the variants run by turns in one process, and `median` is the median over the turns. A goal is met if the interval reaches "
        "it. `expected` is the estimate before the first measurement."
    )


def _line(row: Row, notes: list[str]) -> str:
    sign, _, value = row.bar.partition(" ")
    mark = f" <sup>{notes.index(row.note) + 1}</sup>" if row.note else ""
    met = {None: "", True: "yes", False: "no"}[row.met]
    low, median, high = (_shown(number, row.unit) for number in row.figure)
    bar = f"{SIGNS[sign]} {value}" if row.bar else ""
    expected = "" if row.expected is None else f"{row.expected:g}"
    return f"| {row.what}{mark} | {median} | {low} to {high} | {bar} | {met} | {expected} |"


def _shown(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text if unit == "x" else f"{text} {unit}"


def placed(page: str, written: str) -> str:
    """A page with the section between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{written}{END}{after}"


def write() -> None:
    """Write the table into the README."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    README.write_text(placed(README.read_text(encoding="utf-8"), section(figures)), encoding="utf-8")


if __name__ == "__main__":
    write()
