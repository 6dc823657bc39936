"""Tracers and functorch transforms before, within and after a training: nothing of theirs is captured, and all of the training is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.hooks.capture.tracing import is_traced, is_transformed
from probes.optional_package import is_older

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Pair(nn.Module):
    """A block whose module takes and returns tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(x) * scale, self.b(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.pair(x, torch.ones(1))
        return self.head(torch.tanh(first + second))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


class AllOfIt(torch.fx.Tracer):
    """Goes into every module, so that hooks are called with proxies."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return False


def operations(traced: Any) -> list[str]:
    return [node.kind() for node in traced.inlined_graph.nodes()]


def jit_trace(model: nn.Module) -> Any:
    return operations(torch.jit.trace(model, X))


def jit_script(model: nn.Module) -> Any:
    return operations(torch.jit.script(model))


def tensorboard_graph(model: nn.Module) -> Any:
    """What `SummaryWriter.add_graph` does with the model."""
    was = model.training
    model.train(False)
    traced = torch.jit.trace(model, X, strict=True)
    model.train(was)
    return operations(traced)


def export(model: nn.Module) -> Any:
    return str(torch.export.export(model, (X,), strict=False).graph)


def strict_export(model: nn.Module) -> Any:
    return str(torch.export.export(model, (X,), strict=True).graph)


def fx(model: nn.Module) -> Any:
    return str(AllOfIt().trace(model))


def fake(model: nn.Module) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return model(torch.empty(3, 4)).shape


def gradient(model: nn.Module) -> Any:
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    return torch.func.grad(lambda given: torch.func.functional_call(model, given, (X,)).sum())(parameters)["head.weight"].tolist()


def vmap(model: nn.Module) -> Any:
    return torch.func.vmap(model)(X).tolist()


def jacobian(model: nn.Module) -> Any:
    return torch.func.jacrev(model)(X[0]).tolist()


def forward_mode(model: nn.Module) -> Any:
    return torch.func.jvp(model, (X,), (torch.ones_like(X),))[1].tolist()


ASIDE = [jit_trace, jit_script, tensorboard_graph, export, strict_export, fx, fake, gradient, vmap, jacobian, forward_mode]
SPEC: dict[str, Any] = {
    "version": 1,
    "probes": {
        "inputs": {"modules": ["pair"], "values": ["input.x"]},
        "outputs": {"modules": ["pair"], "values": ["output"]},
        "heads": {"modules": ["head"], "values": ["output"]},
        "grads": {"modules": ["pair"], "values": ["grad_output"]},
        "weights": {"hook": "tensor", "tensors": ["head.weight"], "values": ["grad"]},
    },
}


class ByHand:
    """Plain hooks on the modules of SPEC."""

    def __init__(self, model: Net) -> None:
        self.saved: dict[str, list[Tensor]] = {name: [] for name in ("x", "0", "1", "head", "g0", "g1", "w")}
        self.on = True
        model.pair.register_forward_pre_hook(lambda m, args: self.keep("x", args[0]))
        model.pair.register_forward_hook(self.pair)
        model.head.register_forward_hook(lambda m, args, out: self.keep("head", out))
        model.head.weight.register_hook(lambda grad: self.keep("w", grad))

    def keep(self, name: str, value: Tensor) -> None:
        if self.on:
            self.saved[name].append(value.detach().clone())

    def pair(self, module: nn.Module, args: Any, out: tuple[Tensor, Tensor]) -> None:
        if self.on:
            for index, value in enumerate(out):
                self.keep(str(index), value)
                if value.requires_grad:
                    value.register_hook(lambda grad, name=f"g{index}": self.keep(name, grad))


def steps(model: nn.Module, aside: Callable[[nn.Module], Any], at: int, loop: Any = None) -> Any:
    """Three steps of training, with something aside before the step `at`; 3 is after the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = None
    for index, x in enumerate([X, X + 1, X + 2]):
        found = aside(model) if index == at else found
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    return aside(model) if at == 3 else found


def expected(aside: Callable[[nn.Module], Any], at: int) -> tuple[dict[str, list[Tensor]], Any]:
    model = net()
    result = steps(net(), aside, at)
    hand = ByHand(model)
    steps(model, lambda _: None, at)
    return hand.saved, result


def check(directory: Path, saved: dict[str, list[Tensor]]) -> None:
    run = probes.open(directory)
    names = {
        "x": ("inputs", "pair", "input.x"),
        "0": ("outputs", "pair", "output.0"),
        "1": ("outputs", "pair", "output.1"),
        "head": ("heads", "head", "output"),
        "g0": ("grads", "pair", "grad_output.0"),
        "g1": ("grads", "pair", "grad_output.1"),
        "w": ("weights", "head.weight", "grad"),
    }
    for name, place in names.items():
        series = run[place]
        assert [(clock["step"], clock["microstep"], clock["call"]) for clock in series.clocks] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(series.torch(), saved[name], strict=True)), name


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("aside", ASIDE)
def test_tracing_or_transforming_within_an_epoch_changes_no_capture_and_works_as_without_probes(
    tmp_path: Path, aside: Callable[[nn.Module], Any], at: int
) -> None:
    if aside is strict_export:
        torch._dynamo.reset()
        if is_older(torch.__version__, (2, 8)):
            pytest.skip("this torch names nodes after the functions on the way to them, such as the one that watches calls")
    saved, result = expected(aside, at)
    model = net()
    with probes.attach(model, SPEC, out=tmp_path / "run") as run, run.epoch(0):
        assert steps(model, aside, at) == result
    check(tmp_path / "run", saved)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_step_that_the_loop_names_has_the_values_of_grad_and_jvp_as_they_are_under_the_transform(tmp_path: Path) -> None:
    model = net()
    spec = {"version": 1, "probes": {"outputs": SPEC["probes"]["outputs"], "inputs": SPEC["probes"]["inputs"]}}
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.epoch(0):
        for aside in run.steps([gradient, forward_mode]):
            aside(model)
    series = probes.open(tmp_path / "run")["outputs", "pair", "output.0"]
    assert [torch.equal(value, model.pair.a(X).detach()) for value in series.torch()] == [True, True]
    assert torch.equal(probes.open(tmp_path / "run")["inputs", "pair", "input.x"].torch()[0], X)


def test_a_value_that_vmap_wraps_is_skipped_with_that_reason_and_the_next_one_is_captured(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, SPEC, out=tmp_path / "run") as run, run.epoch(0):
        for x in run.steps([X, X + 1]):
            torch.func.vmap(model)(x)
            model(x).sum().backward()
    for binding, account in zip(run.plan.bindings, run.accounts[0], strict=True):
        leaves = 2 if binding.target == "pair" and binding.root in ("output", "grad_output") else 1
        assert account.skipped["functorch"] == (2 * leaves if binding.value != "grad" else 0), binding.value
    series = probes.open(tmp_path / "run")["outputs", "pair", "output.0"]
    assert [(clock["step"], clock["microstep"]) for clock in series.clocks] == [(0, 0), (1, 0)]


class TracesItself(nn.Module):
    """Traces a part of itself in its first call, without the further calls that compare."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(4, 4))
        self.traced: Any = None

    def forward(self, x: Tensor) -> Any:
        if self.traced is None:
            self.traced = torch.jit.trace(self.part, x, check_trace=False)
        return self.part(x)


def test_a_part_that_is_traced_within_a_call_is_captured_for_its_own_call_only(tmp_path: Path) -> None:
    model = TracesItself()
    spec = {"version": 1, "probes": {"p": {"modules": ["part.0"], "values": ["input", "output"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.epoch(0):
        for x in run.steps([X, X + 1]):
            model(x)
    series = probes.open(tmp_path / "run")["p", "part.0", "output"]
    assert torch.equal(series.torch()[0], model.part(X).detach())
    assert "clone" not in str(model.traced.graph)


@pytest.mark.parametrize("aside", ASIDE)
def test_only_traced_or_transformed_calls_count_as_such(aside: Callable[[nn.Module], Any]) -> None:
    if aside in (jit_script, strict_export, fx):
        pytest.skip("no Python code of the model runs, or it is not called")
    seen: list[bool] = []
    model = net()
    model.head.register_forward_pre_hook(lambda *_: seen.append(is_traced() or is_transformed()))
    aside(model)
    assert seen
    assert all(seen)
    with torch.autograd.detect_anomaly():
        model(X).sum().backward()
    assert seen[-1] is False
