"""A mistake in this code ends the captures, and never the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.errors import RunError
from probes.run_directory.recover import recover
from probes.runner.clock.run_clock import RunClock
from probes.runner.epoch_writer import EpochWriter
from probes.runner.run import Run

SPEC: dict[str, Any] = {"version": 1, "name": "t", "probes": {"p": {"hook": "forward", "modules": ["0"]}}}


def attach(model: nn.Module, out: Path) -> Run:
    return probes.attach(model, SPEC, out=out)


def failing(method: Any, number: int) -> Any:
    """A method that fails from its n-th call on."""
    calls: list[int] = []

    def fails(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) >= number:
            raise KeyError("a mistake")
        return method(*args, **options)

    return fails


@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [
        (RunClock, "call_enters", 4),
        (RunClock, "call_leaves", 4),
        (RunClock, "optimizer_stepped", 4),
        (RunClock, "item_begins", 5),
        (EpochWriter, "end_step", 4),
        (EpochWriter, "open", 2),
        (EpochWriter, "close", 2),
    ],
)
def test_a_bug_in_probes_ends_the_captures_and_not_the_training(
    owner: type, name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(model: nn.Module, run: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in run.epochs(2):
            for x in run.steps([torch.ones(2, 3) * step for step in range(6)]):
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        reached.append(True)

    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    reached: list[bool] = []
    plain = net()
    with attach(plain, tmp_path / "plain") as run:
        train(plain, run)
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), number))
    model = net()
    with (
        pytest.raises(RunError, match="internal error, nothing more is captured: KeyError: 'a mistake'"),
        attach(model, tmp_path / "run") as run,
    ):
        train(model, run)
    assert reached == [True, True]
    assert all(torch.equal(one, other) for one, other in zip(plain.parameters(), model.parameters(), strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert "please report it" in capfd.readouterr().err
    monkeypatch.undo()
    recover(tmp_path / "run")
    found = probes.open(tmp_path / "run")
    assert found.state[max(found.state)] == "incomplete" or name in ("open", "close")
    whole = {capture.clock: capture.value.tobytes() for capture in probes.open(tmp_path / "plain")["p", "0"]}
    kept = {capture.clock: capture.value.tobytes() for capture in found["p", "0"]}
    assert kept.items() <= whole.items()
    assert len(kept) >= 3
