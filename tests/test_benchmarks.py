"""The page of costs and the lines of the README are what the figures say."""

from __future__ import annotations

import json

from benchmarks.row import Row, from_dict
from benchmarks.table import BEGIN, END, FIGURES, HEAD, PAGE, README, placed, section, short
from benchmarks.turns import Interval, by_turns, interval, ratios

FIGURES_READ = json.loads(FIGURES.read_text(encoding="utf-8"))
ROWS = [from_dict(row) for row in FIGURES_READ["rows"]]


def test_the_page_and_the_lines_of_the_readme_are_those_of_the_figures() -> None:
    page = README.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert page == placed(page, short(FIGURES_READ)), "the README is out of date; run `python -m benchmarks.table`"
    assert PAGE.read_text(encoding="utf-8") == HEAD + section(FIGURES_READ), "the page is out of date; run `python -m benchmarks.table`"


def test_the_readme_has_four_lines_whose_numbers_are_medians_of_the_figures() -> None:
    lines = short(FIGURES_READ).splitlines()
    assert len(lines) == 4
    whole = next(row for row in ROWS if row.what.startswith("`probes`, whole values"))
    assert f"without hooks: {whole.figure[1]:.3g} with six" in lines[0]
    assert not any("<" in line for line in lines)


def test_every_missed_goal_has_its_measured_minimum_below_the_table() -> None:
    assert [row.what for row in ROWS if row.met is False and not row.note] == []


def test_figures_state_whether_a_goal_is_met() -> None:
    assert [row["met"] for row in FIGURES_READ["rows"]] == [row.met for row in ROWS]


def test_a_bar_is_met_where_the_interval_reaches_it() -> None:
    assert Row("", "", Interval(3.9, 4.1, 4.3), bar="<= 4").met
    assert not Row("", "", Interval(4.01, 4.1, 4.3), bar="<= 4").met
    assert Row("", "", Interval(17, 19, 20.5), bar=">= 20").met
    assert not Row("", "", Interval(17, 19, 19.5), bar=">= 20").met
    assert Row("", "", Interval(17, 19, 19.5)).met is None


def test_the_interval_of_a_median_is_narrower_than_the_values() -> None:
    assert interval([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert interval([float(number) for number in range(101)]) == (40.0, 50.0, 60.0)


def test_ratios_are_taken_within_a_turn() -> None:
    seconds = iter(range(1, 100))
    rows = by_turns({name: lambda: float(next(seconds)) for name in ("bare", "ours", "rival")}, turns=4)
    assert [row["bare"] for row in rows] == [6.0, 8.0, 10.0, 15.0]  # the first turn is thrown away, and each begins with another
    assert ratios([{"bare": 1.0, "ours": 3.0, "rival": 2.0}], "ours", "rival", "bare").median == 2.0
