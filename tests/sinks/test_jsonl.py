from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from probes.clock import Clock, SeriesKey
from probes.component import Number, Reading, SinkContext
from probes.sinks.jsonl import Jsonl, lines
from probes.testing import check_sink


def reading(numbers: dict[str, Number], step: int = 3, late: bool = False, target: str = "fc1", **clock: int) -> Reading:
    at = Clock(1, "train", step, 100 + step, clock.get("microstep", 0), clock.get("call", 0), clock.get("backward", 0), 0)
    return Reading(SeriesKey("size", target, "output", "train"), at, late, numbers)


@pytest.mark.parametrize("keys", [{}, {"path": "metrics_2.jsonl", "max_elements": 4096}], ids=str)
def test_the_sink_passes_the_conformance_kit(keys: dict[str, object]) -> None:
    check_sink(Jsonl.model_validate({"kind": "jsonl", **keys}))


@pytest.mark.parametrize(
    "path", ["../x.jsonl", "/x.jsonl", "a/x.jsonl", "ledger.jsonl", "ledger.rank-0001.jsonl", ".jsonl", "x.json", "x.jsonl\n", ""]
)
def test_a_path_with_folders_or_of_the_record_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="not a valid name of a file"):
        Jsonl.model_validate({"kind": "jsonl", "path": path})


def test_a_step_is_one_line_of_flat_names_and_numbers() -> None:
    (line,) = lines([reading({"mean": 0.5, "nan": 0.0}), reading({"": 2}, target="")])
    assert json.loads(line) == {
        "epoch": 1,
        "phase": "train",
        "step": 3,
        "global_step": 103,
        "values": {"size/fc1/output/mean": 0.5, "size/fc1/output/nan": 0.0, "size/./output": 2},
    }


def test_a_second_call_within_a_step_has_another_name() -> None:
    (line,) = lines([reading({"": 1.0}), reading({"": 2.0}, call=1), reading({"": 3.0}, microstep=2, backward=1)])
    assert json.loads(line)["values"] == {
        "size/fc1/output": 1.0,
        "size/fc1/output/call-1": 2.0,
        "size/fc1/output/microstep-2/backward-1": 3.0,
    }


def test_a_late_capture_is_in_a_line_for_its_own_step() -> None:
    first, second = map(json.loads, lines([reading({"": 1.0}), reading({"": 2.0}, step=2, late=True)]))
    assert (first["step"], second["step"], second["late"]) == (3, 2, True)
    assert "late" not in first


def test_a_slash_in_a_path_is_escaped() -> None:
    (line,) = lines([reading({"": 1.0}, target="a/b%")])
    assert list(json.loads(line)["values"]) == ["size/a%2Fb%25/output"]


def test_an_unfinished_last_line_is_cut_off_and_whole_lines_stay(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"whole":1}\n{"torn', "utf-8")
    session = Jsonl().open(SinkContext(0, (tmp_path / "log.jsonl",)))
    session.step([reading({"": 1.0})])
    session.close()
    whole, added = (tmp_path / "log.jsonl").read_text("utf-8").splitlines()
    assert (whole, json.loads(added)["step"]) == ('{"whole":1}', 3)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine", "utf-8")
    run = tmp_path / "run"
    run.mkdir()
    for make in (os.symlink, os.link):
        make(victim, run / "log.jsonl")
        with pytest.raises(OSError, match=r"log\.jsonl"):
            Jsonl().open(SinkContext(0, (run / "log.jsonl",)))
        (run / "log.jsonl").unlink()
    os.mkfifo(run / "log.jsonl")
    with pytest.raises(OSError, match=r"log\.jsonl"):
        Jsonl().open(SinkContext(0, (run / "log.jsonl",)))
    assert victim.read_text("utf-8") == "mine"
