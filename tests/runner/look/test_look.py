from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import PlanError, RunError, UsageError
from probes.runner.watch.call_watch import call_watch
from tests.runner.capturing import Block


def spec(**probe: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {"p": probe}}


def batch() -> Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(3))


def square(output: dict[str, Tensor]) -> Tensor:
    return output["logits"].square().mean()


class Recurrent(nn.Module):
    """Calls one layer three times, with a loss in its output."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Any]:
        for _ in range(3):
            x = self.cell(x).tanh()
        return {"loss": x.square().mean(), "states": [x]}


def test_a_look_has_the_values_of_hooks_by_hand_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = Block()
    saved: list[Tensor] = []
    handle = model.b.register_forward_hook(lambda module, args, output: saved.append(output.detach().clone()))
    found = probes.look(model, spec(hook="forward", modules=["b"]), batch())
    assert torch.equal(found["p", "b"].torch()[0], saved[0])
    assert torch.equal(found.output["logits"], model(batch())["logits"])
    assert not list(tmp_path.iterdir())
    handle.remove()
    assert not model.b._forward_hooks
    assert call_watch.listeners == ()


@pytest.mark.parametrize("training", [True, False])
def test_schedules_and_sinks_do_not_count_in_a_look(training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    when = {"phases": ["test"], "epochs": {"from": 3}, "steps": {"every": 10, "from": 5}, "trigger": {"kind": "nonfinite"}}
    wanted = spec(hook="forward", modules=["b"], when=when, transforms=[{"kind": "norm"}], sinks=["log", "file"])
    found = probes.look(Block().train(training), {**wanted, "sinks": {"log": {"kind": "jsonl"}, "file": {"kind": "hdf5"}}}, batch())
    assert len(found.series[0]) == 1
    assert found.series[0].key.phase == ("train" if training else "eval")
    assert not list(tmp_path.iterdir())


def test_calls_of_a_module_are_numbered_and_chosen() -> None:
    every = probes.look(Recurrent(), spec(values=["input", "output"], modules=["cell"]), batch())
    assert every["p", "cell", "output"].clocks["call"].tolist() == [0, 1, 2]
    assert every["p", "cell", "output"].clocks["microstep"].tolist() == [0, 0, 0]
    one = probes.look(Recurrent(), spec(hook="forward", modules=["cell"], when={"calls": {"at": [1]}}), batch())
    assert one["p", "cell"].clocks["call"].tolist() == [1]


@pytest.mark.parametrize("backward", ["loss", "output.loss", lambda output: output["loss"]])
def test_gradients_are_those_of_the_named_loss_and_parameters_keep_theirs(backward: Any) -> None:
    model, x = Recurrent(), batch()
    model(x)["loss"].backward()
    before = model.cell.weight.grad
    assert before is not None
    kept = before.clone()
    wanted = {
        "version": 1,
        "probes": {
            "flow": {"modules": ["cell"], "values": ["grad_output"]},
            "weight": {"hook": "tensor", "tensors": ["cell.weight"], "stage": "final"},
        },
    }
    found = probes.look(model, wanted, x, backward=backward)
    assert model.cell.weight.grad is before
    assert torch.equal(before, kept)
    assert torch.equal(found["weight", "cell.weight"].torch()[0], kept)
    assert len(found["flow", "cell"]) == 3
    assert found.loss is found.output["loss"]


def test_a_look_changes_no_random_state_and_no_result() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    torch.manual_seed(5)
    plain = model(batch())
    after = torch.get_rng_state()
    torch.manual_seed(5)
    found = probes.look(model, spec(hook="forward", modules=["*"], transforms=[{"kind": "stats"}]), batch())
    assert torch.equal(found.output, plain)
    assert torch.equal(torch.get_rng_state(), after)


def test_an_edit_applies_to_the_call_alone() -> None:
    model, x = Block(), batch()
    plain = model(x)["logits"]
    edit = {"allow_edits": True, **spec(hook="forward", modules=["b"], edit={"kind": "zero"})}
    edited = probes.look(model, edit, x).output["logits"]
    assert not torch.equal(edited, plain)
    assert torch.equal(model(x)["logits"], plain)


def test_accumulations_and_several_dtypes_are_read_as_from_a_file() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    found = probes.look(model, spec(hook="forward", modules=["0"], transforms=[{"kind": "accumulate"}]), batch())
    assert found["p", "0"].numpy().shape[0] == 1
    low = probes.look(model, spec(hook="forward", modules=["0"], transforms=[{"kind": "cast", "dtype": "bfloat16"}]), batch())
    assert low["p", "0"].dtype == "bfloat16"
    assert torch.equal(low["p", "0"].torch()[0], model[0](batch()).bfloat16())


def test_an_exception_of_the_model_removes_the_hooks() -> None:
    model = Block()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        probes.look(model, spec(hook="forward", modules=["b"]), torch.zeros(2, 3))
    assert not model.b._forward_hooks
    assert call_watch.listeners == ()


def test_a_missing_capture_raises_its_cause() -> None:
    with pytest.raises(RunError, match=r"(?s)captured nothing.*no backward ran: give `backward`"):
        probes.look(Block(), spec(modules=["b"], values=["grad_output"]), batch())
    with pytest.raises(RunError, match=r"`output.nothing`"):
        probes.look(Block(), spec(modules=["b"], values=["output.nothing"]), batch())
    with pytest.raises(PlanError, match="no module `bb`"):
        probes.look(Block(), spec(modules=["bb"], hook="forward"), batch())


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        ("nothing", "what the model returned has `output.loss`, `output.states.0`"),
        ("states.0", r"a tensor of shape \(5, 4\); a loss is a tensor with one element"),
        ("loss[0]", "has brackets"),
        (lambda output: 3.0, "the function `backward` gives a float"),
        (lambda output: output["loss"].detach(), "without a graph"),
    ],
)
def test_a_loss_that_is_not_a_scalar_is_refused(backward: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        probes.look(Recurrent(), spec(modules=["cell"], values=["grad_output"]), batch(), backward=backward)


def test_a_look_at_several_models_at_once_is_refused() -> None:
    with pytest.raises(UsageError, match="look takes one model, not a dict"):
        probes.look({"a": Block()}, spec(hook="forward", modules=["b"]), batch())


def test_a_look_within_a_run_is_not_a_call_of_another_model(tmp_path: Path) -> None:
    model, other = Block(), Block()
    with probes.attach(model, spec(hook="forward", modules=["b"]), out=tmp_path / "run") as run:
        for x in run.steps([batch(), batch()]):
            square(model(x)).backward()
            probes.look(other, spec(hook="forward", modules=["b"]), x)
    assert len(probes.open(tmp_path / "run")["p", "b"]) == 2
