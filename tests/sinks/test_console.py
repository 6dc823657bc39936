from __future__ import annotations

import pytest

from probes.clock import Clock, SeriesKey
from probes.component import Number, Reading, SinkContext
from probes.sinks.console import Console, line
from probes.testing import check_sink


def reading(numbers: dict[str, Number], target: str = "fc1", phase: str = "train", call: int = 0) -> Reading:
    return Reading(SeriesKey("size", target, "output", phase), Clock(0, phase, 7, 7, 0, call, 0, 0), False, numbers)


def test_the_sink_passes_the_conformance_kit() -> None:
    check_sink(Console(max_elements=4))


def test_a_line_has_the_place_the_series_and_short_numbers() -> None:
    assert line(reading({"mean": 0.123456, "count": 12})) == "epoch 0 step 7  size/fc1:output  mean 0.1235  count 12"
    assert line(reading({"": True}, phase="eval", call=2), rank=1) == "epoch 0 step 7 of eval call 2 rank 1  size/fc1:output  true"


def test_control_characters_of_names_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in line(reading({"": 1.0}, target="\x1b[2J"))


def test_the_lines_of_a_step_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    session = Console().open(SinkContext(0))
    session.step([reading({"": 1.0}), reading({"": 2.0})])
    session.close()
    assert capsys.readouterr().err.count("\n") == 2


def test_without_stderr_the_lines_are_lost_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    Console().open(SinkContext(0)).step([reading({"": 1.0})])
