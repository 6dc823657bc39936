"""Ranks as the environment states them, and ranks that differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import probes
from probes.errors import StorageError, UsageError
from probes.proof.verify import verify
from probes.run_directory.launch.launcher import place_in_launch

SPEC = {"version": 1, "name": "s", "probes": {"p": {"hook": "forward", "modules": ["0"]}}}


def environment(monkeypatch: pytest.MonkeyPatch, **given: str) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
        if name in given:
            monkeypatch.setenv(name, given[name])


def train(model: nn.Module, out: Path, epochs: int = 1) -> None:
    with probes.attach(model, SPEC, out=out) as run:
        for _ in run.epochs(epochs):
            for x in run.steps([torch.ones(2, 3)]):
                model(x)


@pytest.mark.parametrize("given", [{"RANK": "3"}, {"RANK": "3", "WORLD_SIZE": "1"}, {"RANK": "", "WORLD_SIZE": ""}])
def test_a_process_that_is_not_one_of_several_has_no_rank(given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, **given)
    train(nn.Sequential(nn.Linear(3, 2)), tmp_path / "run")
    assert probes.open(tmp_path / "run")["p", "0"].clocks["rank"].tolist() == [0]
    verdict = probes.verify(tmp_path / "run")
    assert verdict.ok, verdict.findings


@pytest.mark.parametrize("given", [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "a", "WORLD_SIZE": "2"}, {"RANK": "-1", "WORLD_SIZE": "2"}])
def test_a_rank_that_the_launch_does_not_have_is_refused_before_the_first_step(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, **given)
    with pytest.raises(UsageError, match=f"`RANK={given['RANK']}` and `WORLD_SIZE=2`"):
        train(nn.Sequential(nn.Linear(3, 2)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_environment_states_rank_and_world(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, RANK="1", WORLD_SIZE="4")
    assert place_in_launch() == (1, 4)


def test_stages_of_a_pipeline_with_other_layers_continue_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 5), nn.ReLU())]
    for restart in (0, 1):
        for rank, stage in enumerate(stages):
            about = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": str(restart)}
            environment(monkeypatch, RANK=str(rank), **about)
            with probes.attach(stage, SPEC, out=tmp_path / "run") as run:
                for _ in run.epochs(1 + restart):
                    for x in run.steps([torch.ones(2, 3)]):
                        stage(x)
    run = probes.open(tmp_path / "run")
    assert run.state == {0: "complete", 1: "complete"}
    assert [one["next_epoch"] for one in run.launches] == [0, 1]
    for rank, size in ((0, 2), (1, 5)):
        assert [capture.value.shape for capture in run["p", "0"].sel(rank=rank)] == [(2, size)] * 2


def test_a_rank_that_discards_its_run_keeps_the_files_of_the_other_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out = nn.Sequential(nn.Linear(3, 2)), tmp_path / "run"
    runs = []
    for rank in (0, 1):
        environment(monkeypatch, RANK=str(rank), WORLD_SIZE="2")
        run = probes.attach(model, SPEC, out=out)
        run.start()
        runs.append(run)
    with runs[1].epoch(0), runs[1].step():
        model(torch.ones(2, 3))
    runs[0].discard()
    runs[1].close()
    assert [one.clock.rank for one in probes.open(out)["p", "0"]] == [1]
    assert [path.name for path in out.iterdir() if "rank-0000" in path.name] == ["end.rank-0000.json"]
    assert json.loads((out / "run.json").read_text())["run_id"] == json.loads((out / "run.rank-0001.json").read_text())["run_id"]
    assert verify(out).ok


def test_the_last_rank_that_discards_its_run_removes_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for rank in (0, 1):
        environment(monkeypatch, RANK=str(rank), WORLD_SIZE="2")
        runs.append(probes.attach(nn.Sequential(nn.Linear(3, 2)), SPEC, out=tmp_path / "run"))
        runs[-1].start()
    for run in runs:
        run.discard()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("variable", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_a_refused_process_of_several_without_a_rank_learns_how_to_get_one(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch)
    model = nn.Sequential(nn.Linear(3, 2))
    train(model, tmp_path / "run")
    with pytest.raises(StorageError) as alone:
        train(model, tmp_path / "run")
    assert "has no rank" not in str(alone.value)
    monkeypatch.setenv(variable, "2")
    with pytest.raises(StorageError, match=rf"`{variable}=2`\) and has no rank yet: call `torch.distributed.init_process_group` before"):
        train(model, tmp_path / "run")
