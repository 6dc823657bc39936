"""torch.compile: what hooks in compiled regions store, how often they are compiled, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import probes
from probes.errors import PlanError, RunError
from probes.hooks.capture import compiled
from tests.old_torch import compiles_with_hooks, has_inductor

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch's own, while it compiles
    compiles_with_hooks,
]


class Net(nn.Module):
    """A captured layer with an in-place ReLU behind it, called twice, and a dict output."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.relu = nn.ReLU(inplace=True)
        self.b = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.relu(self.a(x))
        x = self.relu(self.a(x))
        return {"y": self.b(input=x), "x": x}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
VALUES = {"hook": "forward", "modules": ["a", "b", "relu"]}


def train(call: Any, data: Any, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data:
        optimizer.zero_grad()
        call(x)["y"].square().mean().backward()
        optimizer.step()


def record(path: Path, wrap: Any, spec: dict[str, Any], steps: int = 4, before: int = 0, epochs: int = 1, named: bool = True) -> Any:
    """Train a fresh Net with probes; `wrap` gives what is called. `before` steps run before the probes are attached.

    Where the steps are not named, the optimizer ends them.
    """
    torch.manual_seed(5)
    model = Net()
    call = wrap(model)
    attached = call if isinstance(call, nn.Module) else model
    train(call, [X] * before, model)
    with probes.attach(attached, {"version": 1, "name": "t", "probes": spec}, out=path) as run:
        for _ in run.epochs(epochs):
            train(call, run.steps([X] * steps) if named else [X] * steps, model)
    return probes.open(path), model


def equal(ours: Any, theirs: Any) -> None:
    assert [str(series.key) for series in ours.series] == [str(series.key) for series in theirs.series]
    for one, other in zip(ours.series, theirs.series, strict=True):
        assert [capture.clock for capture in one] == [capture.clock for capture in other]
        assert all(torch.equal(a, b) for a, b in zip(one.torch(), other.torch(), strict=True))


def compile_with(**options: Any) -> Any:
    return lambda model: torch.compile(model, **options)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(
    ("backend", "fullgraph"),
    [
        ("eager", True),
        pytest.param("aot_eager", False, marks=pytest.mark.torture),
        pytest.param("eager", False, marks=pytest.mark.torture),
        pytest.param("aot_eager", True, marks=pytest.mark.torture),
    ],
)
def test_values_of_a_compiled_model_are_those_of_the_plain_one(tmp_path: Path, backend: str, fullgraph: bool, before: int) -> None:
    spec = {"p": VALUES, "q": {"modules": ["b", ""], "values": ["input", "output"]}}
    plain, _ = record(tmp_path / "plain", lambda model: model, spec, before=before)
    ours, _ = record(tmp_path / "ours", compile_with(backend=backend, fullgraph=fullgraph), spec, before=before)
    equal(ours, plain)
    assert (ours["p", "a"].torch() < 0).any()


@has_inductor
def test_values_of_a_model_that_inductor_compiled_are_those_of_the_plain_one(tmp_path: Path) -> None:
    # One step: inductor may sum the gradients of weights in another order, so that those of the next step round otherwise.
    plain, _ = record(tmp_path / "plain", lambda model: model, {"p": VALUES}, steps=1)
    ours, _ = record(tmp_path / "ours", compile_with(backend="inductor"), {"p": VALUES}, steps=1)
    equal(ours, plain)
    assert (ours["p", "a"].torch() < 0).any()


def test_gradients_of_values_break_the_graph_and_are_right(tmp_path: Path) -> None:
    spec = {
        "p": {"modules": ["a", "b"], "values": ["output", "grad_output", "grad_input_total"]},
        "w": {"hook": "tensor", "tensors": ["a.weight"], "values": ["grad", "data"]},
        "f": {"hook": "tensor", "tensors": ["a.weight"], "stage": "final"},
    }
    plain, _ = record(tmp_path / "plain", lambda model: model, spec)
    ours, _ = record(tmp_path / "ours", compile_with(backend="aot_eager"), spec)
    equal(ours, plain)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_gradient_of_a_value_in_a_fullgraph_region_is_refused_with_advice(tmp_path: Path, in_place: bool) -> None:
    model = Net()
    if in_place:
        model.compile(backend="eager", fullgraph=True)
    else:
        model = torch.compile(model, backend="eager", fullgraph=True)
    spec = {"version": 1, "probes": {"p": {"hook": "backward", "modules": ["a"]}}}
    with pytest.raises(PlanError, match=r"(?s)`grad_output` of `a` needs a graph break.*without fullgraph"):
        probes.attach(model, spec, out=tmp_path / "run")


def test_a_hook_that_breaks_the_graph_of_a_compiled_model_is_reported_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), backend="eager")
    spec = {"version": 1, "probes": {"p": {"hook": "backward", "modules": ["0", "2"]}, "q": {"hook": "forward", "modules": ["0"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        said = capsys.readouterr().err
        for x in run.steps([X]):
            model(x).sum().backward()
    assert said.count("breaks the compiled graph") == 1
    assert "probe `p`: `grad_output` of `0` (and 1 more) breaks the compiled graph" in said


@pytest.mark.parametrize("when", [{"steps": {"every": 2}}, {"epochs": {"from": 1}}])
def test_a_schedule_that_needs_two_graphs_is_refused_where_pytorch_allows_one(tmp_path: Path, when: dict[str, Any]) -> None:
    model = torch.compile(Net(), backend="eager")
    spec: dict[str, Any] = {"version": 1, "probes": {"p": {**VALUES, "when": when}}}
    with torch._dynamo.config.patch(error_on_recompile=True):
        with pytest.raises(
            PlanError, match="the model is compiled again where the schedule changes, and `error_on_recompile` ends the training"
        ):
            probes.attach(model, spec, out=tmp_path / "run")
        probes.resolve({**spec, "probes": {"p": VALUES}}, model)
    probes.resolve(spec, model)


def test_parameter_gradients_in_a_fullgraph_region_are_right(tmp_path: Path) -> None:
    spec = {"w": {"hook": "tensor", "tensors": ["a.weight"], "stage": "accumulated"}}
    plain, _ = record(tmp_path / "plain", lambda model: model, spec)
    equal(record(tmp_path / "ours", compile_with(backend="aot_eager", fullgraph=True), spec)[0], plain)


class Keyed(nn.Module):
    """A module whose output has the keys 0 and "0"."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Pair()

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x)
        result: Tensor = found[0] + found["0"]
        return result


class Pair(nn.Module):
    def forward(self, x: Tensor) -> dict[Any, Tensor]:
        return {"0": x + 1, 0: x + 2, 1: x}


@pytest.mark.parametrize("wrap", [lambda model: model, compile_with(backend="eager", fullgraph=True), compile_with(backend="aot_eager")])
def test_a_key_0_and_a_key_of_the_text_0_are_two_values(tmp_path: Path, wrap: Any) -> None:
    model = Keyed()
    call = wrap(model)
    with probes.attach(model, {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["inner"]}}}, out=tmp_path / "run") as run:
        for x in run.steps([X]):
            call(x)
    read = probes.open(tmp_path / "run")
    found = {series.key.leaf: series.torch()[0] - X for series in read.series}
    assert {leaf: round(float(apart.mean())) for leaf, apart in found.items()} == {"output.0": 1, 'output."0 (int)"': 2, "output.1": 0}


def test_an_edit_in_a_compiled_region_is_right(tmp_path: Path) -> None:
    outputs = []
    for wrap in (lambda model: model, compile_with(backend="aot_eager")):
        torch.manual_seed(5)
        model = Net()
        call = wrap(model)
        spec = {
            "version": 1,
            "allow_edits": True,
            "probes": {"e": {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 2}}},
        }
        with probes.attach(call, spec, out=tmp_path / str(len(outputs))) as run:
            for x in run.steps([X]):
                outputs.append(call(x)["y"])
    assert torch.equal(outputs[0], outputs[1])


def test_an_edit_in_a_fullgraph_region_is_refused(tmp_path: Path) -> None:
    spec = {"version": 1, "allow_edits": True, "probes": {"e": {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 2}}}}
    with pytest.raises(PlanError, match="an edit of `output` of `a` needs a graph break"):
        probes.attach(torch.compile(Net(), fullgraph=True), spec, out=tmp_path / "run")


def test_there_is_one_graph_for_due_steps_and_one_for_others(tmp_path: Path) -> None:
    made = []

    def count(graph: Any, _inputs: Any) -> Any:
        made.append(graph)
        return graph.forward

    spec = {"p": {**VALUES, "modules": ["a"], "when": {"steps": {"every": 3}}}}
    ours, _ = record(tmp_path / "ours", compile_with(backend=count, fullgraph=True), spec, steps=12, epochs=2)
    assert len(made) == 2
    assert len(ours["p", "a"].torch()) == 2 * 4 * 2


def test_hooks_stay_on_a_compiled_model_from_epoch_to_epoch(tmp_path: Path) -> None:
    spec = {"p": VALUES, "late": {**VALUES, "when": {"epochs": {"from": 2}}}}
    plain, _ = record(tmp_path / "plain", lambda model: model, spec, epochs=4)
    equal(record(tmp_path / "ours", compile_with(backend="eager"), spec, epochs=4)[0], plain)


def test_a_compiled_part_of_a_plain_model_is_captured(tmp_path: Path) -> None:
    def regional(model: Net) -> Net:
        model.a = torch.compile(model.a, backend="aot_eager")  # type: ignore[assignment]  # it is called alike
        return model

    spec = {"p": {"modules": ["a"], "values": ["output", "input"]}}
    plain, _ = record(tmp_path / "plain", lambda model: model, spec)
    equal(record(tmp_path / "ours", regional, spec)[0], plain)


def test_a_compiled_function_that_calls_the_model_is_captured(tmp_path: Path) -> None:
    def function(model: Net) -> Any:
        return torch.compile(lambda x: model(x), backend="eager")

    plain, _ = record(tmp_path / "plain", lambda model: model, {"p": VALUES})
    equal(record(tmp_path / "ours", function, {"p": VALUES})[0], plain)


@pytest.mark.parametrize("named", [False, True], ids=["optimizer", "named"])
@pytest.mark.parametrize(
    ("more", "backend"),
    [
        pytest.param({}, "eager", id="gradients"),
        pytest.param({"p": VALUES}, "aot_eager", id="values too"),
        pytest.param({}, "aot_eager", id="gradients-aot", marks=pytest.mark.torture),
        pytest.param({"p": VALUES}, "eager", id="values too-eager", marks=pytest.mark.torture),
    ],
)
def test_parameter_gradients_under_a_compiled_function_are_in_their_own_steps(
    tmp_path: Path, backend: str, more: dict[str, Any], named: bool
) -> None:
    def function(model: Net) -> Any:
        return torch.compile(lambda x: model(x), backend=backend)

    spec = {"w": {"hook": "tensor", "tensors": ["**.weight"], "values": ["grad"]}, **more}
    plain, _ = record(tmp_path / "plain", lambda model: model, spec, named=named)
    equal(record(tmp_path / "ours", function, spec, named=named)[0], plain)


def test_a_gradient_in_a_function_compiled_as_one_graph_raises_with_advice(tmp_path: Path) -> None:
    model = Net()
    call = torch.compile(lambda x: model(x), backend="eager", fullgraph=True)
    spec = {"version": 1, "probes": {"p": {"hook": "backward", "modules": ["a"]}}}
    with (
        pytest.raises(torch._dynamo.exc.Unsupported, match="probes: gradients of values and edits need a graph break"),
        probes.attach(model, spec, out=tmp_path / "run") as run,
    ):
        train(call, run.steps([X]), model)


WEIGHT = {"hook": "tensor", "tensors": ["a.weight"], "values": ["grad"]}


@pytest.mark.parametrize("probe", [{"hook": "backward", "modules": ["a"]}, WEIGHT], ids=["value", "weight"])
def test_a_gradient_in_a_backward_compiled_as_one_graph_raises_with_advice(tmp_path: Path, probe: dict[str, Any]) -> None:
    from torch._dynamo import compiled_autograd

    model = Net()
    compiler = torch.compile(backend="eager", fullgraph=True)
    run = probes.attach(model, {"version": 1, "probes": {"p": probe}}, out=tmp_path / "run")
    with suppress(RunError), run:
        loss = model(X)["y"].sum()
        with (
            compiled_autograd._enable(compiler),  # type: ignore[no-untyped-call]  # untyped in torch
            pytest.raises(torch._dynamo.exc.Unsupported, match="probes: this runs between two graphs; compile without fullgraph"),
        ):
            loss.backward()


def test_a_graph_that_ignores_a_hook_is_reported_as_compiled_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "forget", lambda: None)
    with pytest.raises(RunError, match="4 times compiled away"):
        record(tmp_path / "run", compile_with(backend="eager"), {"p": {**VALUES, "modules": ["a"]}}, before=2)


def test_training_of_a_compiled_model_is_bit_for_bit_as_without_probes(tmp_path: Path) -> None:
    torch.manual_seed(5)
    plain = Net()
    train(torch.compile(plain, backend="aot_eager"), [X] * 4, plain)
    _, probed = record(tmp_path / "run", compile_with(backend="aot_eager"), {"p": {"modules": ["**"], "values": ["input", "output"]}})
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), probed.state_dict().values(), strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in probed.modules())


def test_export_runs_without_hooks_of_probes(tmp_path: Path) -> None:
    model = Net()
    with probes.attach(model, {"version": 1, "probes": {"p": VALUES}}, out=tmp_path / "run") as run:
        for x in run.steps([X]):
            torch.export.export(model, (x,), strict=False)
            model(x)
    assert len(probes.open(tmp_path / "run")["p", "b"].torch()) == 1
