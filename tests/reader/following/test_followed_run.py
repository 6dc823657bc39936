from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probes.clock import SeriesKey
from probes.reader.following.followed_run import FollowedRun
from probes.run_directory.owner.claim import claim_name
from probes.run_directory.owner.ownership import own
from tests.reader.recorded import Recording, counted

LOSS = SeriesKey("loop", "", "loop.loss", "train")


def test_a_run_is_followed_from_before_its_first_file_to_its_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    followed = FollowedRun(run)
    assert followed.look().state == "waiting"
    run.mkdir()
    owned = own(run, "r")
    assert followed.look().state == "waiting"
    Recording(run).take(np.float32(3).reshape(()), key=LOSS).take(np.ones((2, 3), "<f4")).left()
    found = followed.look()
    assert (found.state, found.captures, found.sealed) == ("running", 2, {})
    assert f"pid {os.getpid()}" in found.writer
    assert [(step["epoch"], step["phase"], step["step"]) for step in found.steps] == [(0, "train", 0)]
    assert [(one.word, [*one.numbers]) for one in found.series] == [("loop/:loop.loss", [3.0]), ("acts/fc1:output", [1.0])]
    (run / "epoch-0000.journal").unlink()
    Recording(run, 0).take(np.float32(3).reshape(()), key=LOSS).sealed()
    Recording(run, 1).take(np.float32(5).reshape(()), key=LOSS, step=7).left()
    found = followed.look()
    assert (found.captures, found.sealed, found.steps[0]["step"]) == (2, {"complete": 1}, 7)
    assert [*found.series[0].numbers] == [3.0, 5.0]
    (run / "epoch-0001.journal").unlink()
    owned.release()
    assert followed.look().state == "finished"


def test_earlier_captures_are_shown_at_the_first_look(tmp_path: Path) -> None:
    (series,) = FollowedRun(counted(tmp_path, 2)).look().series
    assert [*series.numbers] == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_run_whose_process_has_ended_is_shown_as_killed_until_it_is_recovered(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    Recording(tmp_path, 1).take(np.zeros(1, "<f4")).left()
    assert FollowedRun(tmp_path).look().state == "killed"


def test_an_empty_run_and_a_damaged_one_are_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.json").write_text("{}")
    assert FollowedRun(tmp_path / "empty").look().state == "empty"
    damaged = counted(tmp_path / "damaged", 2)
    ledger = damaged / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"captures":4', b'"captures":5', 1))
    found = FollowedRun(damaged).look()
    assert (found.state, found.captures) == ("damaged", 9)
    assert any("ledger.jsonl" in problem for problem in found.problems)
    Recording(tmp_path / "torn").take(np.zeros(1, "<f4")).left().write_bytes(b"nonsense" * 20)
    found = FollowedRun(tmp_path / "torn").look()
    assert found.state == "damaged"
    assert "does not start with" in found.problems[0]


def test_events_and_gaps_are_known_before_the_epoch_ends(tmp_path: Path) -> None:
    recording = Recording(tmp_path).take(np.full(1, np.nan, "<f4"))
    event = {"probe": "acts", "target": "fc1", "leaf": "output", "epoch": 0, "phase": "train", "step": 0, "number": "nan", "kind": "Linear"}
    recording.annexes["train", 0] = {"events": [event], "gaps": [["acts", "fc2", "output", "train", "unused", 1]]}
    recording.left()
    found = FollowedRun(tmp_path).look()
    assert found.events == [event]
    assert found.missing == ["acts: `output` of `fc2`: unused once"]
    assert found.series[0].not_finite == 1


def test_steps_with_sample_ids_alone_count_no_captures(tmp_path: Path) -> None:
    recording = Recording(tmp_path).ids(0, [3, 4])
    recording.steps["train", 0] = []
    recording.left()
    found = FollowedRun(tmp_path).look()
    assert (found.captures, found.steps[0]["step"]) == (0, 0)


def test_the_last_of_many_captures_are_kept(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for step in range(300):
        recording.take(np.full(1, step, "<f4"), step=step)
        if step % 100 == 0:
            recording.take(np.full(1, step, "<f4"), key=LOSS, step=step)
    recording.left()
    loss, acts = FollowedRun(tmp_path).look().series
    assert [*loss.numbers] == [0, 100, 200]
    assert [*acts.numbers] == list(range(180, 300))


def test_nothing_is_locked_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(tmp_path, 2)
    owned = own(tmp_path, "r")
    Recording(tmp_path, 2).take(np.zeros(1, "<f4")).left()
    before = {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}
    really = os.open

    def watched(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC), path
        return really(path, flags, *rest, **options)

    def refused(*arguments: object) -> None:
        raise AssertionError("a lock was taken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", watched)
        patch.setattr(fcntl, "flock", refused)
        followed = FollowedRun(tmp_path)
        assert [followed.look().state for _ in range(3)] == ["running"] * 3
    assert {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")} == before
    owned.release()


def test_a_process_of_another_machine_counts_as_running(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros(1, "<f4")).left()
    claim = tmp_path / claim_name()
    claim.write_text('{"pid": 1, "host": "elsewhere", "since": "2026-01-01T00:00:00Z", "proof": "lock"}')
    found = FollowedRun(tmp_path).look()
    assert (found.state, found.is_over) == ("elsewhere", False)
    claim.write_text('{"pid": 1, "host": "elsewhere", "since": "2026-01-01T00:00:00Z", "proof": "heartbeat"}')
    assert FollowedRun(tmp_path).look().state == "running"
    os.utime(claim, (0, 0))
    assert FollowedRun(tmp_path).look().state == "killed"
