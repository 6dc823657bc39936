"""Ranks that end before the others: by themselves, which is no fault, or because they were lost, which is one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import probes
from probes.commands.ls import ls
from probes.commands.recover import recover
from probes.runner.launch_summary import LaunchSummary
from tests import independent_verifier
from tests.proof.test_second_language import answers

SPEC: dict[str, Any] = {"version": 1, "name": "s", "probes": {"p": {"hook": "forward", "modules": ["0"], "values": ["output"]}}}

Ranks = Callable[..., LaunchSummary | None]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ranks:
    """Trains the ranks of one start one after the other, each for its number of epochs; with a negative one, it fails after them."""

    def train(*epochs: int, job: str = "job", resume: bool = False, start: int | None = None, within: bool = False) -> LaunchSummary | None:
        found = None
        for rank, count in enumerate(epochs):
            for name, value in {"RANK": rank, "WORLD_SIZE": len(epochs), "TORCHELASTIC_RUN_ID": job}.items():
                monkeypatch.setenv(name, str(value))
            try:
                with probes.attach(nn.Sequential(nn.Linear(2, 2)), SPEC, out=tmp_path / "run", resume=resume) as run:
                    for _ in run.epochs(abs(count), start):
                        for x in run.steps([torch.ones(1, 2)] * 2):
                            run_model(run, x)
                        if within:
                            raise KeyError("lost")
                    if count < 0:
                        raise KeyError("lost")
            except KeyError:
                continue
            found = run.of_all_ranks
        return found

    return train


def run_model(run: Any, x: torch.Tensor) -> None:
    run.engine.plan.trees[""].nodes[""].module(x)


def verifies(run: Path) -> bool:
    """What three verifiers agree on."""
    ours = probes.verify(run).ok
    assert independent_verifier.verifies(run) == ours
    if shutil.which("node"):
        assert (answers([(run, "")]) == [""]) == ours
    return ours


def test_a_rank_with_fewer_epochs_is_named_and_no_fault(ranks: Ranks, tmp_path: Path) -> None:
    summary = ranks(3, 1, 2, 3)
    assert summary is not None
    assert "rank 1 has no file of epochs 1, 2, as its program ended before" in summary.text()
    assert "rank 2 has no file of epoch 2, as its program ended before" in summary.text()
    run = probes.open(tmp_path / "run")
    assert run.state == {0: "complete", 1: "complete", 2: "complete"}
    assert run.not_shown == [
        "rank 1 has no file of epoch 1, as its program ended before",
        "ranks 1, 2 have no file of epoch 2, as their programs ended before",
    ]
    assert run.not_shown[0] in CliRunner().invoke(ls, [str(tmp_path / "run")]).output
    assert verifies(tmp_path / "run")
    assert json.loads(CliRunner().invoke(recover, [str(tmp_path / "run"), "--json"]).output)["absent"] == []
    assert sorted(path.name for path in (tmp_path / "run").glob("end*")) == ["end.rank-0001.json", "end.rank-0002.json"]


def test_ranks_with_the_same_epochs_leave_no_note(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(2, 2) is not None
    assert not list((tmp_path / "run").glob("end*"))


def test_a_rank_that_was_lost_is_missing(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(2, -1) is None
    run = probes.open(tmp_path / "run")
    assert run.not_shown == ["rank 1 has no file of epoch 1"]
    assert run.state == {0: "complete", 1: "incomplete"}
    assert not verifies(tmp_path / "run")


@pytest.mark.parametrize("note", ["", "another head", "a later epoch", "no JSON"])
def test_a_rank_whose_ledger_was_cut_is_missing_whatever_its_note_says(ranks: Ranks, tmp_path: Path, note: str) -> None:
    ranks(3, 2)
    run = tmp_path / "run"
    (run / "epoch-0001.rank-0001.h5").unlink()
    ledger, left = run / "ledger.rank-0001.jsonl", run / "end.rank-0001.json"
    ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])
    if note == "another head":
        left.write_text(json.dumps({**json.loads(left.read_text()), "head": "0" * 64}))
    if note == "a later epoch":
        left.write_text(json.dumps({**json.loads(left.read_text()), "last": 0}))
    if note == "no JSON":
        left.write_text("[")
    assert not verifies(run)
    assert probes.open(run).not_shown == ["rank 1 has no file of epochs 1, 2"]


def test_an_epoch_in_the_middle_that_a_rank_lacks_is_missing(ranks: Ranks, tmp_path: Path) -> None:
    ranks(3, 2)
    run = tmp_path / "run"
    (run / "epoch-0001.rank-0000.h5").unlink()
    assert not verifies(run)


def test_the_next_start_continues_after_the_last_epoch_of_any_rank(ranks: Ranks, tmp_path: Path) -> None:
    ranks(3, 1)
    ranks(4, 1, job="later", resume=True)
    run = probes.open(tmp_path / "run")
    assert run.launches[1]["next_epoch"] == 3
    assert run.state == dict.fromkeys(range(4), "complete")
    assert run.not_shown == ["rank 1 has no file of epochs 1, 2, 3, as its program ended before"]
    assert verifies(tmp_path / "run")


def test_an_epoch_that_all_remaining_ranks_completed_is_not_hidden_by_a_later_attempt(ranks: Ranks, tmp_path: Path) -> None:
    ranks(2, 1)
    ranks(-2, -2, job="later", resume=True, start=1, within=True)  # both ranks repeat epoch 1, and fail within it
    tries = [one for one in probes.open(tmp_path / "run").attempts if one.epoch == 1]
    assert [(one.attempt, one.rank, one.state, one.captures, one.current) for one in tries] == [
        (1, 0, "complete", 2, True),
        (2, 0, "incomplete", 2, False),
        (2, 1, "incomplete", 2, False),
    ]


def test_a_rank_that_ended_before_the_others_were_killed_is_not_awaited(ranks: Ranks, tmp_path: Path) -> None:
    ranks(-2, 1)
    assert probes.open(tmp_path / "run").not_shown == ["rank 1 has no file of epoch 1, as its program ended before"]
    ranks(3, 1, job="later", resume=True)
    assert probes.open(tmp_path / "run").launches[1]["next_epoch"] == 2
    assert verifies(tmp_path / "run")
