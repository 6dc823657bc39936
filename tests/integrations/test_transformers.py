"""The callback for the Trainer captures what `probes run` captures of the same script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

import probes
from tests.integrations.trainings import roots

MODULE = "probes.integrations.transformers"
missing = [name for name in ("transformers", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} is not installed; the extras `minilm` and `dev` bring them"),
    pytest.mark.filterwarnings("ignore"),  # of its own packages
]


@pytest.mark.torture  # importing transformers takes longer than everything else here
def test_the_callback_captures_what_probes_run_captures(tmp_path: Path) -> None:
    from tests.script.test_trainer import SCRIPT, SPEC

    script = "from probes.integrations.transformers import TrainerProbes\n" + SCRIPT.replace(".train()\n", "").rstrip()
    script = script.removesuffix(")") + ", callbacks=CALLBACKS).train()\n"
    script = script.replace('TrainingArguments("out"', f"TrainingArguments({str(tmp_path / 'out')!r}")
    by_script, by_callback = roots(tmp_path, script, yaml.safe_load(SPEC), "TrainerProbes")
    assert by_callback == by_script
    assert len(by_callback) == 2


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class of the callback, without the import of the library."""
    library = ModuleType("transformers")
    library.TrainerCallback = object  # type: ignore[attr-defined]  # a module gets it here
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield import_module(MODULE).TrainerProbes
    del sys.modules[MODULE]


def trained(callback: Any, batches: int, length: int, most: int, begin: int = 0, **found: Any) -> None:
    """The calls that the Trainer makes.

    Args:
        callback: gets them.
        batches: in a pass.
        length: what the Trainer takes for their number: `most`, if it does not know it.
        most: steps of the training.
        begin: steps of the checkpoint that it continues from.
        found: further arguments of the calls.
    """
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arguments = SimpleNamespace(ignore_data_skip=False, gradient_accumulation_steps=found.pop("accumulate", 1))
    control = SimpleNamespace(should_training_stop=False, should_epoch_stop=False)
    state = SimpleNamespace(epoch=begin // length + begin % length / length if begin else 0)
    callback.on_train_begin(arguments, state, control, model=model)
    number, step = begin, begin // length
    while not control.should_training_stop:
        callback.on_epoch_begin(arguments, state, control, **found)
        for index in range(number % batches, batches):
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            number += 1
            state.epoch = step + (index + 1) / length
            control.should_training_stop = number == most
            if control.should_training_stop:
                break
        callback.on_epoch_end(arguments, state, control)
        step += 1
    callback.on_train_end(arguments, state, control)


OUTPUTS = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": [""]}}}


def test_passes_over_a_stream_without_a_length_are_epochs(callback: Any, tmp_path: Path) -> None:
    trained(callback(OUTPUTS, tmp_path / "run"), batches=4, length=10, most=10)
    found = probes.open(tmp_path / "run")
    assert found["acts", ""].clocks[["epoch", "step"]].tolist() == [(epoch, step) for epoch in range(3) for step in range(4)][:10]
    assert found.state == {0: "complete", 1: "complete", 2: "incomplete"}


def test_an_epoch_in_whose_middle_the_trainer_stops_or_continues_is_not_complete(callback: Any, tmp_path: Path) -> None:
    trained(callback(OUTPUTS, tmp_path / "whole"), batches=4, length=4, most=8)
    trained(callback(OUTPUTS, tmp_path / "run"), batches=4, length=4, most=6)
    states = [probes.open(tmp_path / name).state for name in ("whole", "run")]
    assert states == [{0: "complete", 1: "complete"}, {0: "complete", 1: "incomplete"}]
    trained(callback(OUTPUTS, tmp_path / "run", resume=True), batches=4, length=4, most=12, begin=5)
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: "incomplete", 2: "complete"}
    assert probes.open(tmp_path / "run").sel(epoch=1)["acts", ""].steps.tolist() == [0, 1, 2]  # of an unknown step
    assert probes.verify(tmp_path / "run").ok


@pytest.mark.parametrize(("accumulate", "expected"), [(1, [0, 1, 2, 3]), (2, [0, 1, 2])])
def test_the_steps_before_a_checkpoint_are_joined_if_the_trainer_knows_them(
    callback: Any, accumulate: int, expected: list[int], tmp_path: Path
) -> None:
    trained(callback(OUTPUTS, tmp_path / "run"), batches=4, length=4, most=7)
    arguments = {"train_dataloader": range(4), "accumulate": accumulate}
    trained(callback(OUTPUTS, tmp_path / "run", resume=True), batches=4, length=4, most=8, begin=5, **arguments)
    assert probes.open(tmp_path / "run").sel(epoch=1)["acts", ""].steps.tolist() == expected
