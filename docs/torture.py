"""Write the README's table of what happens when things go wrong, with the counts of the last `make torture`.

Usage: python docs/torture.py     (tests/torture compares)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

README = Path(__file__).parents[1] / "README.md"
COUNTS = Path(__file__).with_name("torture.json")
BEGIN, END = "<!-- what happens when -->", "<!-- end of what happens when -->"


class Case(NamedTuple):
    """One line of the table.

    Attributes:
        when: what goes wrong.
        then: what happens.
        faults: how the names of the rows begin that tried it.
    """

    when: str
    then: str
    faults: tuple[str, ...]


CASES = (
    Case(
        "the process is killed",
        "every committed step is readable; `probes recover` seals the epoch as incomplete",
        ("SIGKILL of the training", "SIGKILL at random"),
    ),
    Case(
        "the sealer is killed, crashes or hangs",
        "training continues; the journal remains until its file is in the ledger; sealing again gives the same file",
        ("SIGKILL of the sealer", "SIGKILL of probes recover", "SIGSEGV", "SIGSTOP", "recover while"),
    ),
    Case(
        "a program is killed repeatedly, has no free file descriptors, no temporary folder or a clock that jumps, or closes all files; "
        "each time it is started with the same command, and recovered in between",
        "one process owns the directory at a time; every committed step of every attempt is stored exactly once and is complete",
        ("generated programs",),
    ),
    Case(
        "power fails, `durability: power` (replays of one recorded run of 3 epochs of 6 steps)",
        "every committed step is kept",
        ("power loss under durability: power",),
    ),
    Case(
        "power fails, `durability: process` (replays of one recorded run of 3 epochs of 6 steps)",
        "every sealed epoch is kept; of the open epoch, no wrong value is accepted",
        ("power loss under durability: process",),
    ),
    Case(
        "the disk or a quota is full",
        "capturing stops with a message; training continues (`on_error: raise` ends it); exit code 3",
        ("disk full", "EDQUOT", "a quota"),
    ),
    Case(
        "the disk fails, or a write is partial",
        "as for a full disk; partial writes are undone or completed",
        ("EIO", "fsync fails", "every n-th write"),
    ),
    Case("the disk is slow", "hooks wait", ("a slow disk",)),
    Case("SIGTERM, Ctrl-C, `sys.exit`, an exception", "the run ends within five seconds; committed steps are kept", ("ends early",)),
    Case(
        "ranks of a launch are killed, or run out of disk, and the launch is restarted or resumed with more or fewer processes",
        "every committed step of every rank is in a file; each epoch is shown once, from one attempt",
        ("ranks of a launch",),
    ),
    Case("two runs use one directory", "the second ends with an error; the first continues", ("two runs",)),
    Case("a sealed file is damaged", "`probes verify` reports the place, or the damage changes no value", ("mutants",)),
    Case(
        "a file or a journal is malicious",
        "the reader refuses it with an error code and opens no other file",
        ("crafted", "journals", "files of strangers"),
    ),
    Case(
        "an epoch has 1,000,000 captures or steps, 10,000 series, or more bytes than memory",
        "the memory of the training process stays constant; the sealer needs less memory than the file has bytes",
        ("captures in one epoch", "captures of", "steps", "sealing"),
    ),
)


def table() -> str:
    """The table, between its marks."""
    data = json.loads(COUNTS.read_text(encoding="utf-8"))
    runs = Counter((row["seed"], row["N"]) for row in data["rows"])
    (seed, share), _ = runs.most_common(1)[0]
    lines = [_line(case, [row for row in data["rows"] if _tried(case, row)], (seed, share)) for case in CASES]
    untold = [row["fault"] for row in data["rows"] if not any(_tried(case, row) for case in CASES)]
    assert not untold, f"no line of the table covers {untold}"
    head = "| When | What happens | Trials | Captures lost or wrong |\n|---|---|--:|--:|"
    rest = " unless a row states others" if len(runs) > 1 else ""
    about = f"Counted by `make torture` (seed {seed}, N={share:g}{rest}); N scales the number of trials."
    return "\n".join([BEGIN, head, *lines, "", about, END])


def _tried(case: Case, row: dict[str, Any]) -> bool:
    name = re.sub(r"^[\d,]+ ", "", row["fault"])
    return name.startswith(case.faults)


def _line(case: Case, rows: list[dict[str, Any]], common: tuple[int, float]) -> str:
    if not rows:
        return f"| {case.when} | {case.then} | not counted yet | |"
    trials, kept, bad = (sum(row[name] for row in rows) for name in ("trials", "acknowledged", "lost"))
    bad += sum(row["wrong"] for row in rows)
    others = sorted({(row["seed"], row["N"]) for row in rows} - {common})
    counted = "".join([f"{trials:,}", *(f" (seed {seed}, N={share:g})" for seed, share in others)])
    return (
        f"| {case.when} | {case.then} | {counted} | {bad} of {kept:,} |" if kept else f"| {case.when} | {case.then} | {counted} | {bad} |"
    )


def page(text: str) -> str:
    """The README with the table in its place."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    assert pattern.search(text), f"README.md has no {BEGIN}"
    return pattern.sub(lambda _: table(), text)


if __name__ == "__main__":
    README.write_text(page(README.read_text(encoding="utf-8")), encoding="utf-8")
