"""Everything of a run that the page draws, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.clock import SeriesKey
from probes.printable import one_line
from probes.proof.comparison.pairing import PlanOrder
from probes.reader.run import RunReader
from probes.reader.series import Series
from probes.report.embeddings import embeddings
from probes.report.figures import MOST_LABELS, Lines, global_steps, lines_of
from probes.report.pictures import MOST_NUMBERS, has_axes, pictures
from probes.report.plain_numbers import plain
from probes.report.thinning import kept

MOST_POINTS = 500_000  # of all lines of a report
FEWEST_INTERVALS, MOST_INTERVALS = 16, 1000
LOOP = "loop"
FIGURES = 7  # of each capture that has many elements


class PlotData:
    """Collects the lines and pictures of a run.

    Args:
        run: the run, or the epochs of it that can be read.
        share: which part of the report it may fill.
    """

    def __init__(self, run: RunReader, share: float = 1.0) -> None:
        order = PlanOrder(run.manifest)
        found = [one for every in run.series for one in every.by_dtype()]
        self._series = sorted(found, key=lambda one: (order.series(one.key), one.word))
        self._axes: dict[tuple[int, ...], int] = {}
        self._groups: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._spans = _spans(self._series)
        self._share = share
        points = MOST_POINTS * share / (2 * max(1, sum(map(_count, self._series))))
        self._intervals = int(min(MOST_INTERVALS, max(FEWEST_INTERVALS, points)))
        self._thinned = 0

    def data(self) -> dict[str, Any]:
        """The plain data: `phases`, `groups` of lines with their `axes`, `pictures`, and what was left out."""
        drawable = []
        for one in self._series:  # one series at a time, because the reader keeps few of them open
            for lines in lines_of(one):
                self._add(lines)
            drawable += [one] if has_axes(one) else []
        by_rank = [of_rank for one in drawable for of_rank in _ranks(one)]
        shown, left_out = pictures(by_rank, int(MOST_NUMBERS * self._share))
        points, more = embeddings(drawable, self._series)
        return {
            "phases": {phase: {"span": span, "epochs": _epochs(self._series, phase)} for phase, span in self._spans.items()},
            "axes": [list(axis) for axis in self._axes],
            "groups": list(self._groups.values()),
            "pictures": [_named(one) for one in (*shown, *points)],
            "pictures_left_out": left_out,
            "projections_left_out": more,
            "thinned_lines": self._thinned,
            "intervals": self._intervals,
        }

    def _add(self, lines: Lines) -> None:
        key = lines.series.key
        group = self._groups.setdefault(_group(key), _new_group(key, lines))
        figures = {one_line(name): self._line(lines.steps, numbers, key.phase) for name, numbers in lines.figures.items()}
        captures = int((lines.series.clocks["rank"] == lines.rank).sum()) if lines.rank is not None else len(lines.series)
        row = {"target": key.target, "leaf": key.leaf, "place": lines.place, "dtype": lines.series.dtype, "captures": captures}
        group["rows"].append({**_named(row), "rank": lines.rank, "read": len(lines.steps), "figures": figures})
        group["figures"] += [name for name in figures if name not in group["figures"]]

    def _line(self, steps: NDArray[np.int64], numbers: NDArray[Any], phase: str) -> dict[str, Any]:
        """One line, thinned; of equal numbers only one is kept, because counts such as those of NaN are nearly always zero."""
        chosen = kept(steps, numbers, self._spans[phase], self._intervals)
        self._thinned += len(chosen) < len(steps)
        shown = plain(numbers[chosen])
        constant = len({str(number) for number in shown}) == 1 and len(shown) > 1
        return {"axis": self._axis(steps[chosen]), **({"constant": shown[0]} if constant else {"numbers": shown})}

    def _axis(self, steps: NDArray[np.int64]) -> int:
        return self._axes.setdefault(tuple(steps.tolist()), len(self._axes))


def _count(series: Series) -> int:
    """The approximate number of lines of a series, by its size: one for each of a few elements, else some figures."""
    elements = series.nbytes // (len(series) * bits_dtype(series.dtype).itemsize)
    return (max(1, elements) if elements <= MOST_LABELS else FIGURES) * len(np.unique(series.clocks["rank"]))


def _ranks(series: Series) -> list[Series]:
    """The series of each rank, so that no picture has captures of two."""
    ranks = np.unique(series.clocks["rank"]).tolist()
    return [series.sel(rank=rank) for rank in ranks] if len(ranks) > 1 else [series]


def _group(key: SeriesKey) -> tuple[str, str, str]:
    """The key of a heat map: a probe, the kind of its value, and a phase."""
    return key.probe, key.leaf.partition(".")[0], key.phase


def _new_group(key: SeriesKey, lines: Lines) -> dict[str, Any]:
    probe, value, phase = map(one_line, _group(key))
    about = lines.series.attrs
    return {
        "probe": probe,
        "value": value,
        "phase": phase,
        "loop": value == LOOP,
        "stored": lines.stored,
        "stage": one_line(str(about.get("stage", ""))),
        "figures": [],
        "rows": [],
    }


def _named(data: dict[str, Any]) -> dict[str, Any]:
    """The data with texts in which every character is visible."""
    return {name: one_line(value) if isinstance(value, str) else value for name, value in data.items()}


def _spans(series: Sequence[Series]) -> dict[str, tuple[int, int]]:
    """The first and last global step of each phase."""
    found: dict[str, tuple[int, int]] = {}
    for one in series:
        steps = global_steps(one.clocks)
        low, high = found.get(one.key.phase, (int(steps.min()), 0))
        found[one.key.phase] = min(low, int(steps.min())), max(high, int(steps.max()))
    return found


def _epochs(series: Sequence[Series], phase: str) -> list[list[int]]:
    """Each epoch of a phase, with the global step of its step 0."""
    found: dict[int, int] = {}
    for epoch, start in (pair for one in series if one.key.phase == phase for pair in _starts(one)):
        found[epoch] = min(start, found.get(epoch, start))
    return [[epoch, start] for epoch, start in sorted(found.items())]


def _starts(series: Series) -> Iterator[tuple[int, int]]:
    clocks, steps = series.clocks, global_steps(series.clocks)
    epochs, first = np.unique(clocks["epoch"], return_index=True)
    for epoch, at in zip(epochs.tolist(), first.tolist(), strict=True):
        yield epoch, int(steps[at]) - int(clocks["step"][at])
