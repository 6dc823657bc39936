"""The summary of all ranks of a launch, and the same facts in the run: verdicts and missing values with their ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import probes
from probes.commands.ls import ls
from probes.runner.launch_summary import LaunchSummary

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "s",
    "probes": {
        "p": {"hook": "forward", "modules": ["0"], "values": ["output.y"], "transforms": [{"kind": "norm"}]},
        "z": {"hook": "forward", "modules": ["0"], "values": ["output.z"], "expect": {"fires": "some"}},
    },
    "rules": {"large": {"probe": "p", "above": 2.0}},
}


class Two(nn.Module):
    """Gives a tensor, and another one that it lacks at some calls."""

    def __init__(self, factor: float, lacks: int) -> None:
        super().__init__()
        self.factor, self.lacks, self.calls = factor, lacks, 0

    def forward(self, x: Tensor) -> dict[str, Any]:
        self.calls += 1
        return {"y": x * self.factor, "z": x if self.calls != self.lacks else None}


@pytest.fixture
def of_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., LaunchSummary | None]:
    """Trains one rank of two; the last one has the summary of all."""

    def train(rank: int, factor: float = 1.0, lacks: int = 0, **changes: Any) -> LaunchSummary | None:
        for name, value in {"RANK": rank, "WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": "job"}.items():
            monkeypatch.setenv(name, str(value))
        model = nn.Sequential(Two(factor, lacks))
        with probes.attach(model, {**SPEC, **changes}, out=tmp_path / "run") as run:
            for x in run.steps([torch.ones(1)] * 4):
                model(x)
        return run.of_all_ranks

    return train


def listed(folder: Path) -> str:
    return CliRunner().invoke(ls, [str(folder / "run")]).output


def test_verdicts_of_all_ranks_are_one_list_with_the_worst_first(of_rank: Callable[..., Any], tmp_path: Path) -> None:
    assert of_rank(0, 3.0) is None
    summary = of_rank(1, 5.0)
    assert [(one.rank, one.worst) for one in summary.verdicts] == [(1, 5.0), (0, 3.0)]
    assert summary.text().count("rule large") == 1
    for text in (summary.text(), listed(tmp_path)):
        first, second = (line for line in text.splitlines() if "out of bounds" in line)
        assert "of rank 1" in first
        assert "of rank 0" in second, "rank 0 of a launch is named, too"


def test_a_value_that_one_rank_missed_is_named_with_it(of_rank: Callable[..., Any], tmp_path: Path) -> None:
    of_rank(0)
    summary = of_rank(1, lacks=2)
    run = probes.open(tmp_path / "run")
    assert [(one.rank, one.leaf, one.times) for one in run.missing] == [(1, "output.z", 1)]
    assert "on rank 1" in listed(tmp_path)
    (row,) = (line for line in summary.text().splitlines() if line.startswith("z "))
    assert "rank 1: " in row


def test_a_value_that_every_rank_missed_is_named_once(of_rank: Callable[..., Any], tmp_path: Path) -> None:
    of_rank(0, lacks=2)
    summary = of_rank(1, lacks=2)
    (row,) = (line for line in summary.text().splitlines() if line.startswith("z "))
    assert " rank " not in row
    assert "on ranks 0, 1" in listed(tmp_path)


def test_a_rank_that_a_schedule_leaves_out_is_not_an_error(of_rank: Callable[..., Any], tmp_path: Path) -> None:
    spared = {**SPEC["probes"], "p": {**SPEC["probes"]["p"], "when": {"ranks": {"at": [1]}}}}
    of_rank(0, 3.0, probes=spared)
    summary = of_rank(1, 5.0, probes=spared)
    assert summary.problems == []
    assert [one.rank for one in summary.verdicts] == [1]
    assert probes.open(tmp_path / "run").missing == []
    assert probes.verify(tmp_path / "run").ok


def test_one_process_names_no_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    model = nn.Sequential(Two(3.0, 2))
    with probes.attach(model, SPEC, out=tmp_path / "run") as run:
        for x in run.steps([torch.ones(1)] * 4):
            model(x)
    assert " rank " not in listed(tmp_path)
    assert probes.open(tmp_path / "run").missing[0].rank is None
