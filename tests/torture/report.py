"""The result of a torture: one row per kind of fault, as a table and as JSON."""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from tests.torture.checking import Count
from tests.torture.nursery import BROKEN, Nurseries

Point = TypeVar("Point")
HEADS = ("fault", "trials", "acknowledged", "lost", "wrong", "seconds", "note")
MOST_PROBLEMS = 20
SMALL = 0.05  # the share below which trials are but a sample next to other tests, and starting processes takes longer


@dataclass
class Row:
    """One kind of fault.

    Attributes:
        fault: what was done.
        trials: how often.
        count: what was found; captures of all trials together.
        seconds: how long it took.
        note: what else was measured.
    """

    fault: str
    trials: int = 0
    count: Count = field(default_factory=Count)
    seconds: float = 0.0
    note: str = ""

    def take(self, answer: dict[str, Any], *problems: str) -> None:
        """Count one trial of the nursery."""
        self.trials += 1
        self.count.add(Count(answer.get("acknowledged", 0), answer.get("lost", 0), answer.get("wrong", 0), answer.get("problems", [])))
        hung = ["the training hung"] if answer.get("hung") else []
        hung += [f"the training broke: {answer['said'][-500:]}"] if answer["status"] == BROKEN else []
        self.count.problems += [*hung, *problems]

    @property
    def ok(self) -> bool:
        """Whether nothing happened that must not."""
        return not (self.count.lost or self.count.wrong or self.count.problems)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        count = {**asdict(self.count), "problems": self.count.problems[:MOST_PROBLEMS]}
        return {"fault": self.fault, "trials": self.trials, **count, "seconds": round(self.seconds, 1), "note": self.note}


@dataclass(frozen=True)
class Effort:
    """How much is to be tried, and where.

    Attributes:
        seed: what chance is drawn from.
        share: of the full number of trials; 1 is a full run.
        folder: where files are written; a file system in memory is fastest.
        nurseries: what forks trainings.
    """

    seed: int
    share: float
    folder: Path
    nurseries: Nurseries

    def chance(self, name: str) -> random.Random:
        """A source of chance of its own for each fault."""
        return random.Random(f"{self.seed} {name}")

    def count(self, full: int, least: int = 1) -> int:
        """How many trials, of so many in a full run."""
        return max(least, round(full * self.share))

    def some(self, points: Sequence[Point], name: str, least: int = 2) -> list[Point]:
        """All points in a full run; else some of them."""
        wanted = self.count(len(points), least)
        return list(points) if wanted >= len(points) else self.chance(name).sample(list(points), wanted)

    @contextmanager
    def row(self, fault: str) -> Iterator[Row]:
        """A row whose time is taken."""
        made, began = Row(fault), monotonic()
        yield made
        made.seconds = monotonic() - began


def text(rows: Iterable[Row]) -> str:
    """The rows as a table for a terminal."""
    cells = [HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    return "\n".join("  ".join(_aligned(column, cell, widths[column]) for column, cell in enumerate(line)).rstrip() for line in cells)


def _cells(row: Row) -> tuple[str, ...]:
    count = row.count
    return row.fault, f"{row.trials:,}", f"{count.acknowledged:,}", str(count.lost), str(count.wrong), f"{row.seconds:.0f}", row.note


def _aligned(column: int, cell: str, width: int) -> str:
    return cell.ljust(width) if HEADS[column] in ("fault", "note") else cell.rjust(width)


def _before(path: Path) -> dict[str, dict[str, Any]]:
    """The rows that earlier runs have left, each with its seed and N."""
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    common = {name: data[name] for name in ("seed", "N") if name in data}  # in files of earlier releases
    return {row["fault"]: common | row for row in data["rows"]}


def save(path: Path, rows: Sequence[Row], seed: int, share: float) -> None:
    """Write the rows down, for the README and for whoever wants to compare; rows that were not run stay, with their own seed and N."""
    table = _before(path) | {row.fault: {"seed": seed, "N": share, **row.as_dict()} for row in rows}
    about = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    data = {**about, "seconds": round(sum(one["seconds"] for one in table.values())), "rows": list(table.values())}
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
