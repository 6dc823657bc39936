"""The captures of all ranks of a launch as one table, and whether they satisfy the spec."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probes.capture_file.closing import MissingValue, rule_verdicts, verdicts_in_words
from probes.errors import Problem
from probes.printable import aligned, counted
from probes.run_directory.create import shown
from probes.run_directory.launch.absent import ended_before
from probes.run_directory.ledger_lines import head_of, read_ledgers, series_rows
from probes.runner.summary import HEADER, RIGHT, Row, RunSummary, missing_lines
from probes.signature import size

DEFERRED = ("captured-nothing", "rule-judged-nothing")  # problems of one rank that captures or verdicts of another rank settle
MOST_NAMED = 8
SUMS = ("fired", "captures", "nbytes")


def end_note(summary: RunSummary) -> dict[str, Any]:
    """The note of a rank for the summary of all: plain data."""
    return {
        "rows": [vars(row) for row in summary.rows],
        "lines": summary.ending(of_launch=True)[1:],
        "rules": [verdict.as_dict() for verdict in summary.verdicts],
        "missing": [one.as_dict() for one in summary.missing],
        "epochs": summary.epochs,
        "deferred": [[*name, problem.as_dict()] for problem in summary.problems if (name := deferred_name(summary, problem))],
    }


def note_without_model(why: str) -> dict[str, Any]:
    """The note of a rank that captured nothing, because its program called no model."""
    return {"rows": [], "lines": [why], "rules": [], "missing": [], "epochs": 0, "deferred": [], "absent": True}


def deferred_name(summary: RunSummary, problem: Problem) -> tuple[str, ...]:
    """The key of a problem that another rank may settle; empty for any other problem."""
    value = summary.unreached.get(problem)
    if value is not None:
        return problem.code, *value
    return (problem.code, problem.path, "", "") if problem.code in DEFERRED else ()


class LaunchSummary:
    """A table with a row for each probe, over all ranks.

    Args:
        notes: what each rank left at its end, by rank.
        directory: the run directory.

    Attributes:
        rows: the counters of each probe.
        ranks: how many ranks there are.
        epochs: the most epochs that a rank has sealed.
        head: the head of the run, over the ledgers of all ranks.
        verdicts: what the rules found on all ranks, by rule, the series that is furthest out of bounds first.
        problems: what no rank captured anything of.
    """

    def __init__(self, notes: Sequence[Mapping[str, Any]], directory: Path) -> None:
        self.directory = directory
        self.ranks = len(notes)
        self.epochs = max(note["epochs"] for note in notes)
        self.head = head_of(read_ledgers(directory))
        names = dict.fromkeys(row["probe"] for note in notes for row in note["rows"])
        self.rows = [_merged([[row for row in note["rows"] if row["probe"] == name] for note in notes]) for name in names]
        self.verdicts = rule_verdicts(notes)
        missing = [MissingValue(**{**one, "rank": rank}) for rank, note in enumerate(notes) for one in note["missing"]]
        said = _said([note["lines"] for note in notes])
        self.lines = [*verdicts_in_words(self.verdicts, ranks=True), *missing_lines(missing), *said, *_ended(notes)]
        self.problems = [*_of_all(notes, self._series())]

    def _series(self) -> set[tuple[str, str, str]]:
        """Probe, target and first word of the leaf of each series that a rank has sealed."""
        ledgers = [ledger.entries for ledger in read_ledgers(self.directory)]
        rows = (row for entries in ledgers for entry in entries for row in series_rows(entries, entry) or ())
        return {(row.probe, row.target, row.leaf.partition(".")[0]) for row in rows}

    def text(self, width: int | None = None) -> str:
        """The table, and the text after it.

        Args:
            width: most characters of a line of the table, as far as names can be shortened; by default any.
        """
        cells = [(r.probe, r.hook, str(r.targets), str(r.fired), str(r.captures), size(r.nbytes), r.note) for r in self.rows]
        files = f"{counted(self.epochs, 'epoch')} of {self.ranks} ranks sealed in {shown(self.directory)}, head of the run {self.head}"
        return "\n".join([*aligned(HEADER, cells, RIGHT, width, kept=("note",)), files, *self.lines])

    def __str__(self) -> str:
        return self.text()


def _of_all(notes: Sequence[Mapping[str, Any]], series: Collection[tuple[str, str, str]]) -> Iterator[Problem]:
    """Problems that no rank settles: of probes and rules those that all ranks report, of values those that no rank captured."""
    said = [{tuple(name): about for *name, about in note["deferred"]} for note in notes if not note.get("absent")]
    for name, about in {name: about for one in reversed(said) for name, about in one.items()}.items():
        code, probe, target, value = name
        if all(name in one for one in said) if code in DEFERRED else (probe, target, value.partition(".")[0]) not in series:
            yield Problem(**about)


def _ended(notes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The ranks that have fewer epochs than others; of those that called no model their note says so."""
    last = max(note["last"] for note in notes)
    early: dict[int, list[int]] = {}
    for rank, note in enumerate(notes):
        if note["last"] < last and not note.get("absent"):
            early.setdefault(note["last"], []).append(rank)
    for epoch, ranks in sorted(early.items()):
        yield ended_before(ranks, range(epoch + 1, last + 1))


def _merged(by_rank: Sequence[Sequence[Mapping[str, Any]]]) -> Row:
    """The counters of a probe over the ranks, with the targets of the rank with the most; a note that only some ranks have names them."""
    rows = [row for of in by_rank for row in of]
    hooks = dict.fromkeys(hook for row in rows for hook in row["hook"].split(", "))
    notes = "; ".join(_said([[word for row in of for word in row["note"].split("; ") if word] for of in by_rank]))
    sums = {name: sum(row[name] for row in rows) for name in SUMS}
    return Row(rows[0]["probe"], ", ".join(hooks), max(row["targets"] for row in rows), **sums, note=notes)


def _said(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Every line once; a line that not all ranks have, with its ranks."""
    for line in dict.fromkeys(line for one in lines for line in one):
        ranks = [str(rank) for rank, one in enumerate(lines) if line in one]
        few = f"{', '.join(ranks[:MOST_NAMED])}{f' and {len(ranks) - MOST_NAMED} more' if len(ranks) > MOST_NAMED else ''}"
        yield line if len(ranks) == len(lines) else f"{'rank' if len(ranks) == 1 else 'ranks'} {few}: {line}"
