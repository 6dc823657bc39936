from __future__ import annotations

import math
import re

import pytest

from probes.clock import Clock, SeriesKey
from probes.component import Number, Reading
from probes.sinks.kernels.metrics import accepted, step_metrics

MLFLOW = re.compile(r"[/\w.\- :]*")  # what its server accepts, as it says in an error


def reading(numbers: dict[str, Number], phase: str = "train", target: str = "fc1", global_step: int = 7, **clock: int) -> Reading:
    at = Clock(1, phase, 3, global_step, clock.get("microstep", 0), clock.get("call", 0), clock.get("backward", 0), 0)
    return Reading(SeriesKey("size", target, "output", phase), at, False, numbers)


def test_readings_of_a_step_are_metrics_of_one_row() -> None:
    (row,) = step_metrics([reading({"mean": 0.5, "+inf": "inf"}), reading({"": True}, target=""), reading({"": 2}, call=1)])
    assert (row.epoch, row.global_step) == (1, 7)
    assert row.values == {
        "size/fc1/output/mean": 0.5,
        "size/fc1/output/posinf": math.inf,
        "size/_root_/output": 1.0,
        "size/fc1/output/call-1": 2.0,
    }


def test_phases_and_ranks_are_separate_rows_and_names() -> None:
    rows = step_metrics([reading({"": 1.0}), reading({"": "nan"}, phase="eval")], rank=3)
    assert [list(row.values) for row in rows] == [["rank-3/size/fc1/output"], ["rank-3/eval/size/fc1/output"]]
    assert math.isnan(rows[1].values["rank-3/eval/size/fc1/output"])


def test_complex_numbers_are_two_metrics_and_unknown_steps_are_left_out() -> None:
    (row,) = step_metrics([reading({"": "(1-2j)"}), reading({"": 5.0}, global_step=-1)])
    assert row.values == {"size/fc1/output/real": 1.0, "size/fc1/output/imag": -2.0}


REFUSED = ["a/%2F", "a/b\u00e9", "a/./b", "a/../b", "a//b", "x" * 300, f"{'x' * 400}\u00e9", "a/[0, 1)", "a/b:c", "/a", 'a"b', "a\nb"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_trackers_refuse_is_replaced_by_one_that_no_other_name_has(name: str) -> None:
    found = accepted(name)
    assert MLFLOW.fullmatch(found)
    assert len(found) <= 250
    assert all(part.strip(".") for part in found.split("/"))
    assert found != accepted(name + "%") != accepted(name + "&")
