"""Modules, parameters and buffers that are replaced, added or deleted during a run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import probes
from probes.errors import ProbesError
from probes.hooks.capture.model_copies import MARKS, is_ours
from probes.runner.watch.process_hooks import module_assigned, parameter_assigned

STAGES: dict[str, Any] = {
    stage: {"hook": "tensor", "tensors": ["0.weight"], "stage": stage, "expect": {"fires": "each_step"}}
    for stage in ("increment", "accumulated", "final")
}
OUTPUT: dict[str, Any] = {"out": {"modules": ["0"], "values": ["output"]}}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def assign(model: nn.Sequential) -> None:
    model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)


def new_parameter(model: nn.Sequential) -> None:
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())
    model[1] = nn.Linear(4, 2)


def new_module(model: nn.Sequential) -> None:
    model[0], model[1] = nn.Linear(4, 4), nn.Linear(4, 2)


def overwrite(model: nn.Sequential) -> None:
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    model.to(torch.float32)
    torch.__future__.set_overwrite_module_params_on_conversion(False)


def table(model: nn.Sequential) -> None:
    for part in model:
        part._parameters["weight"] = nn.Parameter(part.weight.detach().clone())
        part._parameters["bias"] = nn.Parameter(part.bias.detach().clone())


def train(model: nn.Sequential, change: Callable[[nn.Sequential], None], steps: int = 6) -> list[torch.Tensor]:
    """Train; before the third step the model is changed and gets a new optimizer. Return the gradients of `0.weight`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = []
    for index in range(steps):
        if index == 2:
            change(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        gradients.append(model[0].weight.grad.clone())
        optimizer.step()
    return gradients


def ended(spec: dict[str, Any], model: nn.Module, folder: Path, loop: Callable[[probes.Run], object]) -> tuple[str, Any]:
    """The problems that a run of a loop ends with, as text, and its summary."""
    run = probes.attach(model, spec, folder)
    try:
        with run:
            loop(run)
    except ProbesError as error:
        return str(error), run.summary()
    return "", run.summary()


@pytest.mark.parametrize("change", [assign, new_parameter, new_module], ids=lambda one: one.__name__)
def test_no_step_or_gradient_is_missing_after_parameters_are_assigned(change: Callable[[nn.Sequential], None], tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, {"version": 1, "probes": {**STAGES, **OUTPUT}}, tmp_path / "run") as run:
        gradients = train(model, change)
        assert run.summary().steps == {"train": 6}
    found = probes.open(tmp_path / "run")
    assert len(found["out", "0"]) == 6
    for stage in STAGES:
        series = found[stage, "0.weight"]
        assert [int(step) for step in series.steps] == list(range(6))
        assert all(torch.equal(torch.from_numpy(one.value.copy()), gradient) for one, gradient in zip(series, gradients, strict=True))
    assert not module_assigned._listeners
    assert not parameter_assigned._listeners


@pytest.mark.parametrize("change", [overwrite, table], ids=lambda one: one.__name__)
def test_after_parameters_are_replaced_without_an_assignment_one_step_lacks_its_gradient_for_that_reason(
    change: Callable[[nn.Sequential], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = net()
    problems, summary = ended({"version": 1, "probes": STAGES}, model, tmp_path / "run", lambda _: train(model, change))
    assert "missing in 1 of 6 steps that were due: replaced once" in problems
    assert summary.steps == {"train": 6}
    found = probes.open(tmp_path / "run")
    assert [int(step) for step in found["final", "0.weight"].steps] == list(range(6))
    assert [int(step) for step in found["increment", "0.weight"].steps] == [0, 1, 3, 4, 5]
    assert "step 2: replaced (the module or tensor was replaced by another one" in capsys.readouterr().err


def test_a_new_head_that_trains_alone_makes_steps_and_is_captured(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, {"version": 1, "probes": {"head": {"modules": ["1"], "values": ["output"]}}}, tmp_path / "run") as run:
        with torch.no_grad():
            model.eval()(torch.randn(3, 4))
        model.train()[0].requires_grad_(False)
        model[1] = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
        assert run.summary().steps == {"eval": 1, "train": 5}
    assert [one.value.shape for one in probes.open(tmp_path / "run").sel(phase="train")["head", "1"]] == [(3, 3)] * 5


def test_a_new_module_that_is_called_by_itself_belongs_to_the_model(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, {"version": 1, "probes": {"head": {"modules": ["1"], "values": ["output"]}}}, tmp_path / "run"):
        model(torch.randn(3, 4))
        model[1] = nn.Linear(4, 3)
        model[1](torch.randn(2, 4))
    assert len(probes.open(tmp_path / "run")["head", "1"]) == 2


def test_the_optimizer_of_another_model_is_still_not_an_event_of_the_clock(tmp_path: Path) -> None:
    model, other = net(), net()
    with probes.attach(model, {"version": 1, "probes": OUTPUT}, tmp_path / "run") as run:
        others = torch.optim.SGD(other.parameters(), lr=0.1)
        for index in range(4):
            model(torch.randn(3, 4)).sum().backward()
            others.step()
            if index == 1:
                assign(other)
                assign(model)
        assert run.summary().steps == {"train": 1}


def test_the_reason_of_a_module_that_was_deleted_is_replaced(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.side = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.body(x)
            return self.side(out) if hasattr(self, "side") else out

    model = Net()
    spec = {"version": 1, "probes": {"side": {"modules": ["side"], "values": ["output"]}}}

    def loop(run: probes.Run) -> None:
        for index, x in enumerate(run.steps(torch.randn(4, 3, 4))):
            if index == 2:
                del model.side
            model(x)

    problems, summary = ended(spec, model, tmp_path / "run", loop)
    assert "in 2 of 4 steps that were due: replaced 2 times" in problems
    assert "module `side` (a `Linear`) was removed" in str(summary)


@pytest.mark.parametrize("tensor", ["weight_mask", "weight_orig"])
@pytest.mark.parametrize("fires", ["some", "each_step"])
def test_a_deleted_buffer_or_parameter_is_named(tensor: str, fires: str, tmp_path: Path) -> None:
    model = net()
    prune.l1_unstructured(model[0], "weight", 0.5)
    probe = {"hook": "tensor", "tensors": [f"0.{tensor}"], "values": ["data"], "expect": {"fires": fires}}

    def loop(run: probes.Run) -> None:
        for index, x in enumerate(run.steps(torch.randn(4, 3, 4))):
            if index == 2:
                prune.remove(model[0], "weight")
            model(x)

    problems, summary = ended({"version": 1, "probes": {"p": probe}}, model, tmp_path / "run", loop)
    assert ("in 2 of 4 steps that were due: replaced 2 times" in problems) is (fires == "each_step")
    assert f"{'buffer' if tensor == 'weight_mask' else 'parameter'} `{tensor}` was deleted" in str(summary)
    assert len(probes.open(tmp_path / "run")["p", f"0.{tensor}"]) == 2


def test_a_module_that_is_added_and_fits_a_glob_is_named_once_and_in_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = net()
    spec: dict[str, Any] = {"version": 1, "probes": {"out": {"modules": ["*"], "values": ["output"]}}}
    spec["probes"]["weights"] = {"hook": "tensor", "tensors": ["**.weight"], "values": ["data"]}
    with probes.attach(model, spec, tmp_path / "run") as run:
        for index, x in enumerate(run.steps(torch.randn(4, 3, 4))):
            if index == 2:
                model.append(nn.Linear(2, 2))
            model(x)
    said = capsys.readouterr().err
    assert said.count("probe `out`: `2` was added to the model after the start and is not captured") == 1
    assert said.count("probe `weights`: `2.weight` was added to the model after the start and is not captured") == 1
    assert "`2` was added to the model after the start and is not captured" in str(run.summary())


def test_the_reason_of_a_parameter_that_needs_no_gradient_is_frozen(tmp_path: Path) -> None:
    model = net()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    probe = {"hook": "tensor", "tensors": ["**.weight"], "stage": "final"}
    with probes.attach(model, {"version": 1, "probes": {"p": probe}}, tmp_path / "run") as run:
        for x in run.steps(torch.randn(3, 3, 4)):
            model(x).sum().backward()
            optimizer.step()
    assert "`grad` of `0.weight`: frozen 3 times" in str(run.summary())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantization_that_moves_hooks_to_new_modules_ends_no_training_and_doubles_no_capture(fused: bool, tmp_path: Path) -> None:
    from torch.ao import quantization

    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 1))
    masked = {"dims": ["row", "channel", "y", "x"], "transforms": [{"kind": "stats", "mask": "input.input"}]}
    spec: dict[str, Any] = {
        "version": 1,
        "probes": {
            "all": {"modules": ["**"], "values": ["input", "output", "grad_output"], "expect": {"fires": "some"}},
            "masked": {"modules": ["3"], "values": ["output"], **masked},
            "called": {"modules": ["3"], "ops": ["conv2d"], "values": ["output"]},
        },
    }
    with probes.attach(model, spec, tmp_path / "run"):
        for step in range(4):
            if step == 2:
                if fused:
                    quantization.fuse_modules_qat(model, [["0", "1", "2"]], inplace=True)
                model.qconfig = quantization.get_default_qat_qconfig("fbgemm")  # type: ignore[assignment]  # not a module
                quantization.prepare_qat(model, inplace=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.randn(4, 1, 5, 5)).sum().backward()
            optimizer.step()
    found = probes.open(tmp_path / "run")
    for probe, *leaf in (("all", "input.input"), ("all", "output"), ("all", "grad_output"), ("masked",), ("called",)):
        clocks = found[(probe, "3", *leaf)].clocks
        assert [(clock["step"], clock["call"]) for clock in clocks] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert not [hook for part in model.modules() for table in MARKS for hook in getattr(part, table).values() if is_ours(hook)]


def test_calls_of_a_shallow_copy_are_captured(tmp_path: Path) -> None:
    model = net()
    model[0].register_forward_hook(lambda *_: None)
    values = ["input", "output"]
    with probes.attach(model, {"version": 1, "probes": {"all": {"modules": ["0"], "values": values}}}, tmp_path / "run") as run:
        for _ in run.steps([0, 1]):
            model(torch.ones(3, 4))
            copy.copy(model)(torch.zeros(3, 4))
            part = copy.copy(model[0])
            model[0] = part
            model(torch.full((3, 4), 2.0))
    found = probes.open(tmp_path / "run")
    assert found["all", "0", "input.input"].numpy()[:, 0, 0].tolist() == [1, 0, 2, 1, 0, 2]
    assert len(found["all", "0", "output"]) == 6
