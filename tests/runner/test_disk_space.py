"""Asking the disk for room before it is too late."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.errors import StorageError
from probes.host import free_bytes
from probes.journal.record_writer import RawFile
from probes.plan import resolve
from probes.run_directory.recover import recover
from probes.run_directory.sealer_process import SealerProcess, SealFailure
from probes.runner.disk_space import OVERHEAD, DiskSpace, due
from tests.descriptors import open_below

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


def test_a_disk_that_is_full_at_the_end_of_an_epoch_keeps_the_journal_and_names_the_way_to_seal_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Identity())
    made = {"version": 1, "probes": {"a": {"hook": "forward", "modules": ["0"]}}}

    def full(*_: object) -> int:
        raise OSError(ENOSPC, "No space left on device")

    with probes.attach(model, made, out=tmp_path / "run") as run:
        with monkeypatch.context() as disk, run.epoch(0):
            with run.step():
                model(torch.ones(2))
            disk.setattr(RawFile, "write", full)
        with run.epoch(1), run.step():
            model(torch.ones(2))
    said = capsys.readouterr().err
    assert said.count("No space left on device") == 1
    assert f'`probes recover "{tmp_path / "run"}"` seals it' in said
    assert "not reached" not in said
    assert open_below(tmp_path) == 0
    recover(tmp_path / "run")
    assert len(probes.open(tmp_path / "run")["a", "0"]) == 1


def test_a_disk_that_is_full_when_an_epoch_begins_is_reported_at_once_and_is_the_only_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters())
    made = {"version": 1, "probes": {"g": {"hook": "tensor", "tensors": ["**.weight"], "values": ["grad"], "stage": "final"}}}

    def full(*_: object) -> int:
        raise OSError(ENOSPC, "No space left on device")

    with probes.attach(model, made, out=tmp_path / "run") as run:
        for epoch in run.epochs(3):
            if epoch == 1:
                monkeypatch.setattr(RawFile, "write", full)
            for _ in run.steps([1, 2]):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
            if epoch == 1:
                assert "capturing stops, the program continues" in capsys.readouterr().err
                monkeypatch.undo()
    assert "No space left" not in capsys.readouterr().err
    assert "filtered" not in str(run.summary())
    assert len(probes.open(tmp_path / "run")["g", "0.weight"]) == 2


def test_a_run_directory_that_is_renamed_is_named_as_the_reason_and_every_journal_that_is_not_sealed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Identity())
    made = {"version": 1, "probes": {"a": {"hook": "forward", "modules": ["0"]}}}
    monkeypatch.setattr(SealerProcess, "submit", lambda sealer, path, options: sealer.failures.append(SealFailure(path.name, "no room")))
    with probes.attach(model, made, out=tmp_path / "run") as run:
        for epoch in run.epochs(6):
            for _ in run.steps([1]):
                model(torch.ones(2))
            if epoch == 4:
                (tmp_path / "run").rename(tmp_path / "other")
    said = capsys.readouterr().err
    assert said.count("the run directory was removed or renamed") == 1
    assert "earlier epochs are safe" not in said
    for number in range(3):
        assert f'epoch-000{number}.journal" could not be sealed: no room; the journal was removed' in said
    assert "2 further journals could not be sealed" in said
