"""Values that trainers log are passed on, and their methods are restored."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
import torch

from probes.script.framework_logs import FrameworkLogs


def made(monkeypatch: pytest.MonkeyPatch, name: str, kind: type) -> None:
    """A module with a class, as if a program had imported it."""
    module = ModuleType(name)
    setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def handed_on() -> list[tuple[Mapping[str, Any], str]]:
    return []


@pytest.mark.parametrize("name", ["lightning.pytorch.core.module", "pytorch_lightning.core.module"])
def test_self_log_of_lightning_gives_numbers_to_the_loop(
    monkeypatch: pytest.MonkeyPatch, handed_on: list[tuple[Mapping[str, Any], str]], name: str
) -> None:
    class LightningModule:
        def log(self, name: str, value: Any, prog_bar: bool = False) -> str:
            return f"{name} {value}"

    original = LightningModule.log
    made(monkeypatch, name, LightningModule)
    logs = FrameworkLogs(lambda values, phase: handed_on.append((values, phase)))
    logs.start()
    assert LightningModule().log("train/loss", 2.5, prog_bar=True) == "train/loss 2.5"
    LightningModule().log("accuracy", value=torch.tensor(0.5))
    LightningModule().log("confusion", torch.zeros(3, 3))
    logs.stop()
    LightningModule().log("late", 1.0)
    assert handed_on == [({"train/loss": 2.5}, ""), ({"accuracy": torch.tensor(0.5)}, ""), ({}, "")]
    assert LightningModule.log is original


def test_the_loss_of_the_trainer_is_a_mean_and_has_another_name(
    monkeypatch: pytest.MonkeyPatch, handed_on: list[tuple[Mapping[str, Any], str]]
) -> None:
    class Trainer:
        def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
            logs["added"] = "a text"

    made(monkeypatch, "transformers.trainer", Trainer)
    logs = FrameworkLogs(lambda values, phase: handed_on.append((values, phase)))
    logs.start()
    Trainer().log({"loss": 1.0, "epoch": 2}, start_time=0.0)
    logs.stop()
    assert handed_on == [({"logged_loss": 1.0, "epoch": 2}, "")]


def test_a_method_that_the_program_has_replaced_is_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trainer:
        def log(self, logs: dict[str, Any]) -> None: ...

    made(monkeypatch, "transformers.trainer", Trainer)
    logs = FrameworkLogs(lambda values, phase: None)
    logs.start()
    Trainer.log = own = lambda self, logs: None  # type: ignore[method-assign,assignment]  # as a program may do
    logs.stop()
    assert Trainer.log is own


def test_the_results_of_an_evaluation_of_the_trainer_are_of_the_phase_eval_also_if_it_fails(
    monkeypatch: pytest.MonkeyPatch, handed_on: list[tuple[Mapping[str, Any], str]]
) -> None:
    class Trainer:
        def log(self, logs: dict[str, Any]) -> None: ...

        def evaluate(self, loss: float) -> None:
            self.log({"eval_loss": loss})
            1 / loss  # fails for 0

    log, evaluate = Trainer.log, Trainer.evaluate
    made(monkeypatch, "transformers.trainer", Trainer)
    logs = FrameworkLogs(lambda values, phase: handed_on.append((values, phase)))
    logs.start()
    trainer = Trainer()
    trainer.evaluate(2.0)
    with pytest.raises(ZeroDivisionError):
        trainer.evaluate(0)
    trainer.log({"epoch": 1})
    logs.stop()
    assert handed_on == [({"eval_loss": 2.0}, "eval"), ({"eval_loss": 0}, "eval"), ({"epoch": 1}, "")]
    assert (Trainer.log, Trainer.evaluate) == (log, evaluate)
