"""What people do to models while probes are attached: nothing of it changes, and nothing is captured wrongly."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import probes
from probes.errors import PlanError
from tests.warm import programs

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def attach(model: nn.Module, path: Path, **probe: Any) -> Any:
    return probes.attach(model, {"version": 1, "name": "t", "probes": {"p": {"modules": ["0"], "values": ["output"], **probe}}}, out=path)


def test_a_tensor_hook_on_a_stale_view_does_not_kill_the_process(tmp_path: Path) -> None:
    """`register_hook` on a view that was rewritten through another alias is a segmentation fault in PyTorch."""
    program = f"""
import torch, probes
from torch import nn

class Stale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
    def forward(self, x):
        base = x * self.weight
        view = base[:2]
        base[2:].mul_(2)
        base.mul_(3)
        return view

model = nn.Sequential(Stale())
spec = {{"version": 1, "probes": {{"p": {{"hook": "backward", "modules": ["0"]}}}}}}
with probes.attach(model, spec, out={str(tmp_path / "run")!r}) as run:
    for x in run.steps([torch.ones(4)] * 2):
        model(x).sum().backward()
print(probes.open({str(tmp_path / "run")!r})["p", "0"].torch().tolist())
"""
    done = programs.run("-c", program)
    assert (done.returncode, done.stdout.strip()) == (0, "[[1.0, 1.0], [1.0, 1.0]]"), done.stderr


class Branches(nn.Module):
    """Two branches and a batch norm: a full backward hook that does nothing changes the order in which gradients are added."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.one = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.last(self.one(x) + self.two(x) + x)


def gradients(model: nn.Module, call: Any = None) -> list[Tensor]:
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    (call or model)(x).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("value", ["input", "output", "grad_output", "grad_input_total"])
def test_a_branching_net_has_the_same_gradients_bit_for_bit(tmp_path: Path, value: str) -> None:
    expected = gradients(Branches())
    model = Branches()
    with attach(model, tmp_path / "run", modules=["**"], values=[value]) as run, run.step():
        found = gradients(model)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_grad_input_is_marked_as_not_neutral_in_the_plan() -> None:
    plan = probes.resolve({"version": 1, "probes": {"p": {"modules": ["one"], "values": ["grad_input", "output"]}}}, Branches())
    assert [binding.neutral for binding in plan.bindings] == [False, True]


def test_a_lazy_modules_parameters_are_bound_after_its_first_call(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(2))
    spec = {
        "version": 1,
        "probes": {
            "g": {"hook": "tensor", "tensors": ["0.weight"]},
            "o": {"hook": "forward", "modules": ["0"]},
            "d": {"hook": "tensor", "tensors": ["0.weight"], "values": ["data"], "expect": {"fires": "some"}},
        },
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with probes.attach(model, spec, out=tmp_path / "run") as run:
            for x in run.steps([X] * 3):
                model(x).sum().backward()
    read = probes.open(tmp_path / "run")
    assert len(read["g", "0.weight"]) == 3
    assert len(read["o", "0"]) == 3
    assert len(read["d", "0.weight"]) == 2  # there was no weight before the first call


def test_hooks_on_a_script_module_are_refused_but_its_parameters_are_captured(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(torch.jit.script(nn.Linear(4, 2)))
    with pytest.raises(PlanError, match="ScriptModule"):
        attach(model, tmp_path / "one")
    spec = {"version": 1, "probes": {"p": {"hook": "tensor", "tensors": ["0.weight"]}}}
    with probes.attach(model, spec, out=tmp_path / "two") as run:
        for x in run.steps([X]):
            model(x).sum().backward()
    assert torch.equal(probes.open(tmp_path / "two")["p", "0.weight"].torch()[0], model[0].weight.grad)


def test_a_legacy_backward_hook_of_the_user_continues_to_work(tmp_path: Path) -> None:
    model = net()
    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        handle = model[0].register_backward_hook(lambda module, before, after: seen.append(after[0].clone()))
        with attach(model, tmp_path / "run", values=["output", "grad_output", "grad_input_total"]) as run:
            for x in run.steps([X] * 2):
                model(x).sum().backward()
    assert torch.equal(probes.open(tmp_path / "run")["p", "0", "grad_output"].torch(), torch.stack(seen))
    assert list(model[0]._backward_hooks) == [handle.id]


@pytest.mark.parametrize("normalize", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_the_state_of_a_parametrized_weight_is_not_touched(tmp_path: Path, normalize: Any) -> None:
    def build() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(normalize(nn.Linear(4, 3)))

    def loop(model: nn.Module, data: Any) -> dict[str, Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        return model.state_dict()

    expected = loop(build(), [X] * 3)
    model = build()
    spec = {
        "version": 1,
        "probes": {
            "p": {"modules": ["**"], "values": ["input", "output", "grad_output"]},
            "w": {"hook": "tensor", "tensors": ["**"], "values": ["data"]},
        },
    }
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        found = loop(model, run.steps([X] * 3))
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert "0.parametrizations.weight" in probes.open(tmp_path / "run")["p"]


def test_functional_call_is_captured_with_the_parameters_it_was_given(tmp_path: Path) -> None:
    model = net()
    ones = {name: torch.ones_like(value) for name, value in model.named_parameters()}
    with attach(model, tmp_path / "run") as run:
        for x in run.steps([X]):
            torch.func.functional_call(model, ones, (x,))
    expected = torch.nn.functional.linear(X, ones["0.weight"], ones["0.bias"])
    assert torch.equal(probes.open(tmp_path / "run")["p", "0"].torch()[0], expected)


def test_func_grad_gives_the_right_gradient_and_the_value_that_it_computes_with_is_captured(tmp_path: Path) -> None:
    model = net()
    parameters = dict(model.named_parameters())

    def loss(values: Any, x: Tensor) -> Tensor:
        return torch.func.functional_call(model, values, (x,)).sum()

    expected = torch.func.grad(loss)(parameters, X)
    found: list[Any] = []
    with attach(model, tmp_path / "run", values=["output", "grad_output"]) as run:
        found.extend(torch.func.grad(loss)(parameters, x) for x in run.steps([X]))
    assert all(torch.equal(expected[name], found[0][name]) for name in expected)
    assert "`grad_output` of `0`: functorch once" in str(run.summary()), "no gradient of a value can be had inside a transform"
    assert torch.equal(probes.open(tmp_path / "run")["p", "0", "output"].torch()[0], model[0](X))


def test_an_averaged_copy_and_a_deep_copy_capture_nothing(tmp_path: Path) -> None:
    model = net()
    with attach(model, tmp_path / "run") as run:
        for x in run.steps([X] * 2):
            averaged = torch.optim.swa_utils.AveragedModel(model)
            model(x)
            averaged(x)
            copy.deepcopy(model)(x)
            averaged.update_parameters(model)
    assert len(probes.open(tmp_path / "run")["p", "0"]) == 2


def test_a_state_dict_saved_while_attached_loads_with_weights_only(tmp_path: Path) -> None:
    model = net()
    with attach(model, tmp_path / "run") as run:
        for x in run.steps([X]):
            model(x)
            buffer, whole = io.BytesIO(), io.BytesIO()
            torch.save(model.state_dict(), buffer)
            torch.save(model, whole)
    buffer.seek(0)
    whole.seek(0)
    state = torch.load(buffer, weights_only=True)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.load(whole, weights_only=False)(X), model(X))


@pytest.mark.filterwarnings("ignore")
def test_a_suspended_run_lets_the_model_be_scripted_traced_and_exported(tmp_path: Path) -> None:
    model = net()
    with attach(model, tmp_path / "run", values=["input", "output"]) as run:
        for x in run.steps([X] * 3):
            model(x)
            with run.suspend():
                assert not model[0]._forward_hooks
                scripted = torch.jit.script(model)
                traced = torch.jit.trace(model, (x,))
                exported = torch.export.export(model, (x,))
                model(x)
            assert model[0]._forward_hooks
    assert torch.equal(scripted(X), model(X))
    assert torch.equal(traced(X), model(X))
    assert torch.equal(exported.module()(X), model(X))
    read = probes.open(tmp_path / "run")
    assert [(c.clock.step, c.clock.microstep) for c in read["p", "0", "output"]] == [(0, 0), (1, 0), (2, 0)]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_symbolic_tracing_with_fx_runs_no_hook_and_the_traced_module_is_the_same(tmp_path: Path) -> None:
    model = net()
    with attach(model, tmp_path / "run") as run:
        for x in run.steps([X]):
            traced = torch.fx.symbolic_trace(model)
            model(x)
    assert torch.equal(traced(X), model(X))
    assert len(probes.open(tmp_path / "run")["p", "0"]) == 1


def test_data_parallel_on_the_cpu_is_unwrapped(tmp_path: Path) -> None:
    model = nn.DataParallel(net())
    with attach(model, tmp_path / "run", values=["output", "grad_output"]) as run:
        for x in run.steps([X] * 2):
            model(x).sum().backward()
    read = probes.open(tmp_path / "run")
    assert len(read["p", "0", "output"]) == len(read["p", "0", "grad_output"]) == 2


def test_the_fast_path_of_a_transformer_encoder_is_noted_in_the_plan() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["layers.*.linear1"], "when": {"phases": ["train", "eval"]}}}}
    plan = probes.resolve(spec, model)
    assert [note.code for note in plan.notes] == ["fast-path"]
    spec["probes"]["p"]["when"] = {"phases": ["train"]}  # type: ignore[index]  # nested plain data
    assert not probes.resolve(spec, model).notes


def test_an_encoder_layer_whose_fast_path_is_off_under_probes_is_captured_in_eval(tmp_path: Path) -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    with attach(model, tmp_path / "run", modules=["layers.0.linear1"], when={"phases": ["eval"]}) as run, torch.no_grad(), run.epoch(0):
        model(torch.randn(2, 3, 8))
    assert probes.open(tmp_path / "run")["p", "layers.0.linear1"].numpy().shape == (1, 2, 3, 16)
