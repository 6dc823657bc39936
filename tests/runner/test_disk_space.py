"""Asking the disk for room before it is too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.errors import StorageError
from probes.host import free_bytes
from probes.plan import resolve
from probes.runner.disk_space import OVERHEAD, DiskSpace, due

LONG = 10**12


def spec(steps: int = LONG, **probe: Any) -> dict[str, Any]:
    return {"version": 1, "name": "r", "clock": {"epoch_steps": steps}, "probes": {"p": {"modules": ["0"], "values": ["output"], **probe}}}


def gradient(steps: int = LONG) -> dict[str, Any]:
    found = spec(steps)
    found["probes"]["p"] = {"hook": "tensor", "tensors": ["0.weight"], "values": ["grad"]}
    return found


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def test_problems_known_before_step_0_are_refused_before_step_0(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=r"has too little disk space: an epoch of 10{12} steps needs .* TiB .*, and .* are free; capture less"
    ):
        probes.attach(net(), gradient(), out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_problem_of_the_first_step_ends_the_program_there(tmp_path: Path) -> None:
    model, seen = net(), 0
    with pytest.raises(StorageError, match="has too little disk space"), probes.attach(model, spec(), out=tmp_path / "r") as run:  # noqa: PT012 - the loop is ended from within
        for _ in run.epochs(1):
            for x in run.steps([torch.ones(3, 4)] * 5):
                model(x)
                seen += 1
    assert seen == 1
    assert len(probes.open(tmp_path / "r")["p", "0"]) == 1


def test_a_limit_of_bytes_bounds_the_requested_bytes(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, {**spec(), "limits": {"bytes_per_epoch": "1 MiB"}}, out=tmp_path / "r") as run, run.epoch(0):
        for x in run.steps([torch.ones(3, 4)] * 5):
            model(x)
    assert len(probes.open(tmp_path / "r")["p", "0"]) == 5


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (None, 1000),
        ({"first": 3}, 3),
        ({"every": 10}, 100),
        ({"every": 10, "first": 3}, 102),
        ({"at": [1, 5, 2000]}, 2),
        ({"from": 990}, 10),
    ],
)
def test_only_due_steps_are_counted(steps: dict[str, Any] | None, expected: int) -> None:
    plan = resolve(spec(1000, **({"when": {"steps": steps}} if steps else {})), net())
    assert due(plan.bindings[0], 1000) == expected
    assert due(plan.bindings[0], None) == 1


def test_the_free_space_of_a_missing_directory_is_that_of_its_parent(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") > OVERHEAD
    DiskSpace(resolve(spec(10), net()), tmp_path / "a").before()
