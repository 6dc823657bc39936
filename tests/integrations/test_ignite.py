"""The handlers for Ignite capture what `probes run` captures of the same script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import probes
from tests.integrations.trainings import roots

pytest.importorskip("ignite", reason="Ignite is not installed; the extra `ignite` brings it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own packages

from probes.integrations.ignite import IgniteProbes  # noqa: E402  # it imports Ignite

SPEC = {
    "version": 1,
    "defaults": {"when": {"phases": ["train", "eval"]}},
    "probes": {
        "acts": {"hook": "forward", "modules": ["0"]},
        "grads": {"hook": "tensor", "tensors": ["2.weight"], "values": ["grad"], "stage": "final", "when": {"phases": ["train"]}},
    },
}
OUTPUTS = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["0"]}}}
SCRIPT = """
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from probes.integrations.ignite import IgniteProbes
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = [(torch.randn(3), torch.tensor(number % 2)) for number in range(12)]
train = torch.utils.data.DataLoader(rows, batch_size=4)
held = torch.utils.data.DataLoader(rows[:6], batch_size=3)
trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)
evaluator = create_supervised_evaluator(model)
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(held))
for callback in CALLBACKS:
    callback.attach(trainer, model)
trainer.run(train, max_epochs=3)
"""


def test_the_callbacks_capture_what_probes_run_captures(tmp_path: Path) -> None:
    by_script, by_callback = roots(tmp_path, SCRIPT, SPEC, "IgniteProbes")
    assert by_callback == by_script
    assert len(by_callback) == 3


def trained(
    out: Path,
    epochs: int,
    state: dict[str, int] | None = None,
    fails_at: int = 0,
    steps: tuple[str, Any] = ("optimizer", [torch.ones(2, 3)] * 4),
    **options: object,
) -> dict[str, int]:
    from ignite.engine import Engine

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def update(engine: Engine, x: torch.Tensor) -> None:
        if fails_at and engine.state.iteration == fails_at:
            raise ValueError("bad batch")
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    trainer = Engine(update)
    spec = {"version": 1, "clock": {"step": steps[0]}, "probes": {"acts": {"hook": "forward", "modules": ["0"]}}}
    IgniteProbes(spec, out, **options).attach(trainer, model)
    if state is not None:
        trainer.load_state_dict(state)
    trainer.run(steps[1], max_epochs=epochs)
    return dict(trainer.state_dict())


def test_an_exception_reaches_the_program_and_leaves_the_epoch_incomplete(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bad batch"):
        trained(tmp_path / "run", 2, fails_at=7)
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: "incomplete"}
    assert probes.verify(tmp_path / "run").ok


def test_a_trainer_that_continues_from_a_checkpoint_continues_its_epochs(tmp_path: Path) -> None:
    state = trained(tmp_path / "run", 2)
    trained(tmp_path / "run", 3, {**state, "max_epochs": 3}, resume=True)
    assert probes.open(tmp_path / "run").state == dict.fromkeys(range(3), "complete")
    assert probes.open(tmp_path / "run")["acts", "0"].clocks["global_step"].tolist() == list(range(12))


def test_a_trainer_that_continues_in_the_middle_of_an_epoch_leaves_it_incomplete(tmp_path: Path) -> None:
    state = trained(tmp_path / "run", 1)
    trained(tmp_path / "run", 3, {**state, "iteration": 6, "max_epochs": 3}, resume=True)
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: "incomplete", 2: "complete"}
    assert any("begins in the middle" in finding.message for finding in probes.verify(tmp_path / "run").findings)


LOADER = DataLoader(torch.ones(4, 2, 3), batch_size=None)


@pytest.mark.parametrize(
    ("rule", "batches", "joined"), [("batch", LOADER, True), ("optimizer", LOADER, False), ("batch", [*LOADER], False)]
)
def test_the_steps_before_a_checkpoint_are_joined_if_a_batch_is_a_step(rule: str, batches: Any, joined: bool, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bad batch"):
        trained(tmp_path / "run", 2, fails_at=8, steps=(rule, batches))
    state = {"epoch_length": 4, "max_epochs": 2, "iteration": 6}
    trained(tmp_path / "run", 2, state, steps=(rule, batches), resume=True)
    found = probes.open(tmp_path / "run").sel(epoch=1)
    assert [one.before for one in found.attempts if one.epoch == 1] == ([2, None] if joined else [None, None])
    assert (found["acts", "0"].steps.tolist() == [0, 1, 2, 3]) is joined


@pytest.mark.parametrize("skip_completed", [False, True])
@pytest.mark.parametrize(("at", "state"), [(6, "incomplete"), (8, "complete")])
def test_an_epoch_in_whose_middle_the_trainer_is_terminated_is_not_complete(
    tmp_path: Path, at: int, state: str, skip_completed: bool
) -> None:
    from ignite.engine import Engine, Events

    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    trainer = Engine(lambda engine, x: model(x).sum().backward())
    IgniteProbes(OUTPUTS, tmp_path / "run").attach(trainer, model)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=at), lambda: trainer.terminate(skip_completed=skip_completed))
    trainer.run([torch.ones(2, 3)] * 4, max_epochs=3)
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: state}


def test_an_epoch_that_is_terminated_alone_is_not_complete_and_the_next_one_is(tmp_path: Path) -> None:
    from ignite.engine import Engine, Events

    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    trainer = Engine(lambda engine, x: model(x).sum().backward())
    IgniteProbes(OUTPUTS, tmp_path / "run").attach(trainer, model)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: trainer.terminate_epoch())
    trainer.run([torch.ones(2, 3)] * 4, max_epochs=3)
    assert probes.open(tmp_path / "run").state == {0: "incomplete", 1: "complete", 2: "complete"}
