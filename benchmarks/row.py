"""One line of the table: a figure, its bar, and what is to be said where the bar is not met."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.turns import Interval

SIGNS = {"<=": "≤", ">=": "≥", "": ""}


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        topic: heading that it stands under.
        what: what is compared with what.
        figure: median and interval.
        unit: of the figure; `x` for a ratio.
        bar: the bar, with its sign: `<= 4`; empty for a figure that is only told.
        expected: what was expected before it was measured first.
        note: the floor that was measured, or why the bar is out of reach; shown where it is not met.
    """

    topic: str
    what: str
    figure: Interval
    unit: str = "x"
    bar: str = ""
    expected: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the interval reaches the bar; None where there is none."""
        if not self.bar:
            return None
        sign, value = self.bar.split()
        return self.figure.low <= float(value) if sign == "<=" else self.figure.high >= float(value)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        figure = [_rounded(value) for value in self.figure]
        return {**asdict(self), "figure": figure, "met": self.met, "note": "" if self.met is not False else self.note}


def from_dict(data: dict[str, Any]) -> Row:
    """A row out of plain data."""
    return Row(**{name: value for name, value in data.items() if name not in ("figure", "met")}, figure=Interval(*data["figure"]))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
