"""Functions that operators and transforms take as arguments, and what compiled code makes: the training is the one without probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import probes
from tests.old_torch import compiles_with_hooks

pytestmark = [compiles_with_hooks, pytest.mark.filterwarnings("ignore")]  # torch's own, while it compiles

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
VALUES = ["input", "output"]


class Branches(nn.Module):
    """Its middle layer is called in the branches of `torch.cond`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.middle = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = torch.cond(x.sum() > 0, lambda y: self.middle(y), lambda y: self.middle(2 * y), (x,))
        found: Tensor = self.last(x)
        return found


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def trained(wrap: Callable[[nn.Module], Callable[[Tensor], Tensor]], attach: Callable[[nn.Module], AbstractContextManager[Any]]) -> Any:
    """Returns the outputs of a training and its weights at the end."""
    torch.manual_seed(5)
    model, outputs = Branches(), []
    call, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model) as run:
        for x in [X] * 3 if run is None else run.steps([X] * 3):
            optimizer.zero_grad()
            outputs.append(call(x))
            outputs[-1].square().mean().backward()
            optimizer.step()
    return [one.detach() for one in outputs], model.state_dict()


def without(_model: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


@pytest.mark.parametrize("values", [VALUES, ["grad_output"]], ids=["values", "gradients"])
@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: torch.compile(model, backend="aot_eager")], ids=["plain", "compiled"])
def test_a_model_whose_modules_are_called_in_branches_trains_as_without_probes(tmp_path: Path, wrap: Any, values: list[str]) -> None:
    probe = {"modules": ["middle", "last"], "values": values, "expect": {"fires": "some"}}

    def attach(model: nn.Module) -> Any:
        return probes.attach(model, {"version": 1, "probes": {"p": probe}}, out=tmp_path / "run")

    outputs, weights = trained(wrap, attach)
    expected, theirs = trained(wrap, without)
    assert all(map(torch.equal, outputs, expected))
    assert all(torch.equal(weights[name], theirs[name]) for name in theirs)
    read = probes.open(tmp_path / "run")
    assert {series.key.target for series in read.series} == {"last"}
    if values is VALUES:
        found = [series.torch() for series in read.series if series.key.leaf == "output"]
        assert all(map(torch.equal, found[0], expected))


def gradient(model: nn.Module, x: Tensor) -> Any:
    return grad(lambda weights: functional_call(model, weights, (x,)).square().mean())(dict(model.named_parameters()))["weight"]


def by_sample(model: nn.Module, x: Tensor) -> Any:
    return vmap(model)(x)


@pytest.mark.parametrize("function", [gradient, by_sample])
def test_a_transform_of_torch_func_in_a_compiled_function_computes_as_without_probes(tmp_path: Path, function: Any) -> None:
    torch.manual_seed(5)
    model = nn.Linear(4, 4)
    call = torch.compile(lambda x: function(model, x), backend="aot_eager")
    expected = call(X)
    spec = {"version": 1, "probes": {"p": {"modules": [""], "values": VALUES}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([X] * 2):
            assert torch.equal(call(x), expected)
            model(x)
    read = probes.open(tmp_path / "run")
    assert [len(series.torch()) for series in read.series] == [2, 2]


class Trainer:
    """An object of a program that answers for no attribute but its own."""

    def __init__(self, model: nn.Module) -> None:
        self.call = torch.compile(model, backend="aot_eager")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"there is no setting {name!r}")

    def step(self, x: Tensor) -> Tensor:
        found: Tensor = self.call(x)
        return found


def test_objects_of_the_program_are_not_asked_while_dynamo_traces(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    trainer = Trainer(model)
    spec = {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        outputs = [trainer.step(x).detach() for x in run.steps([X] * 2)]
    assert torch.equal(probes.open(tmp_path / "run")["p", ""].torch(), torch.stack(outputs))


@torch._dynamo.config.patch(compiled_autograd=True)
def test_compiled_code_may_compile_a_module_while_a_run_listens(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)

    @torch.compile(backend="aot_eager")
    def step(x: Tensor) -> Tensor:
        loss: Tensor = model(x).square().mean()
        loss.backward()
        return loss

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    spec = {"version": 1, "probes": {"p": {"hook": "tensor", "tensors": ["weight"], "values": ["grad"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([X] * 2):
            optimizer.zero_grad()
            step(x)
            optimizer.step()
    assert len(probes.open(tmp_path / "run")["p", "weight"].torch()) == 2


class Growing(nn.Module):
    """Its forward gives it another member."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.again = self.first
        found: Tensor = self.first(x)
        return found


def test_a_module_that_a_graph_adds_to_the_model_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Growing()
    call = torch.compile(model, backend="eager", fullgraph=True)
    with probes.attach(model, {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["*"]}}}, out=tmp_path / "run") as run:
        for x in run.steps([X] * 3):
            call(x)
    assert "`again` was added to the model" in capsys.readouterr().err
