"""The page of costs and the lines of the README, out of the figures in `figures.json`.

Usage: python -m benchmarks.table     (writes the page, and the lines between the markers of the README)
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.row import SIGNS, Row, from_dict

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "costs.md"
FIGURES = Path(__file__).with_name("figures.json")
BEGIN, END = "<!-- benchmarks: written by `make bench` -->", "<!-- end of benchmarks -->"
ASKED = ("Alternatives", "Whole job", "Start")  # how the topics begin that stand in the open
NUMBER = re.compile(r"<(.*?)>")
LINES = (
    "Training time of an encoder with the shape of BERT, divided by the time without hooks: "
    "<`probes`, whole values, divided by training without hooks> with six whole outputs per step captured, "
    "<`probes`, `stats`, divided by training without hooks> with `stats` of them.",
    "Time of `probes run` on the examples, divided by the time of the script alone: "
    "<`probes run` on the example digits, divided by the script alone> (digits), "
    "<`probes run` on the example minilm, divided by the script alone> (minilm).",
    "Time of captures of 4 KiB by hand, divided by the time of `probes`: <4 KiB: h5py append in the hook> (h5py append in the hook), "
    "<4 KiB: list of clones, torch.save at the end> (clones, saved at the end), "
    "<4 KiB: one torch.save for each tensor> (one `torch.save` for each).",
    "Time to attach probes to a model of 5,000 modules: <`attach` to a model of 5,000 modules with a spec of 100 patterns>.",
)
"""What the README says; a name in `<>` is a measurement, whose median is put there."""

HEAD = """\
# Costs

Written by `python -m benchmarks.table` from the figures that `make bench` measures; [benchmarks](../benchmarks/README.md) describes the
method and how to measure other tools.

"""
COLUMNS = ("measurement", "median", "95 % interval", "goal", "met", "expected")


def section(figures: dict[str, Any]) -> str:
    """All measurements: the machine, what most people ask, and the rest."""
    rows = [from_dict(row) for row in figures["rows"]]
    asked = [row for row in rows if row.topic.startswith(ASKED)]
    rest = [row for row in rows if row not in asked]
    met, bars = sum(row.met is True for row in rows), sum(row.met is not None for row in rows)
    head = f"{_machine(figures['machine'])}\n\n{table(asked)}"
    return f"{head}\n## All measurements\n\n{len(rest)} figures; {met} of {bars} goals are met.\n\n{table(rest)}"


def short(figures: dict[str, Any]) -> str:
    """The lines of the README.

    Raises:
        KeyError: a measurement that they show is missing.
    """
    found = {row.what: row for row in (from_dict(row) for row in figures["rows"])}
    return "".join(f"- {NUMBER.sub(lambda name: _median(found[name[1]]), line)}\n" for line in LINES)


def _median(row: Row) -> str:
    return _shown(row.figure[1], row.unit)


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
        "ratio: the variants alternate in one process, and `median` is the median over the turns. A goal is met if the interval reaches "
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
    """Write the page, and the lines of the README."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(HEAD + section(figures), encoding="utf-8")
    README.write_text(placed(README.read_text(encoding="utf-8"), short(figures)), encoding="utf-8")


if __name__ == "__main__":
    write()
