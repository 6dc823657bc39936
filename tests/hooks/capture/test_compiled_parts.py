"""Checkpoints inside compiled regions, models called twice by a compiled function, gradients through inductor."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import probes
from probes.hooks.capture import compiled
from tests.old_torch import compiles_with_hooks, has_inductor
from tests.rounding import U64, after, within

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
VALUES = ["input", "output", "grad_output"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Stack(nn.Module):
    """A part that is recomputed in the backward, once or within another."""

    def __init__(self, modes: tuple[bool, ...] = ()) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.last = nn.Linear(4, 4)
        self.modes = modes

    def part(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self.inner, x, use_reentrant=self.modes[1]) if len(self.modes) > 1 else self.inner(x)
        return torch.tanh(self.last(found))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        found: Tensor = checkpoint(self.part, x, use_reentrant=self.modes[0]) if self.modes else self.part(x)
        return found


def train(call: Any, model: nn.Module, batches: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches:
        optimizer.zero_grad()
        call(x).square().mean().backward()
        optimizer.step()


def recorded(
    path: Path, values: list[str], modes: tuple[bool, ...] = (), wrap: Any = lambda model: model, dtype: torch.dtype = torch.float32
) -> Any:
    torch.manual_seed(5)
    model = Stack(modes).to(dtype)
    call = wrap(model)
    spec = {"version": 1, "name": "t", "probes": {"p": {"modules": ["first", "inner.0", "last"], "values": values}}}
    with probes.attach(model, spec, out=path) as run:
        train(call, model, run.steps([X.to(dtype)] * 3))
    return probes.open(path)


def equal(ours: Any, theirs: Any, bound: float = 0) -> None:
    assert [str(series.key) for series in ours.series] == [str(series.key) for series in theirs.series]
    for one, other in zip(ours.series, theirs.series, strict=True):
        assert [capture.clock for capture in one] == [capture.clock for capture in other], one.key
        assert all(within(a, b, bound) for a, b in zip(one.torch(), other.torch(), strict=True)), one.key


@pytest.mark.parametrize("modes", [(outer, inner) for outer in (False, True) for inner in (False, True)], ids=str)
def test_a_checkpoint_within_a_checkpoint_in_either_mode_is_captured_once(tmp_path: Path, modes: tuple[bool, bool]) -> None:
    equal(recorded(tmp_path / "ours", VALUES, modes), recorded(tmp_path / "plain", VALUES))


@compiles_with_hooks
@pytest.mark.parametrize(
    ("reentrant", "values"),
    [
        pytest.param(False, ["output"], id="values", marks=pytest.mark.torture),
        pytest.param(True, ["output"], id="values-reentrant", marks=pytest.mark.torture),
        pytest.param(False, VALUES, id="gradients"),
        pytest.param(True, VALUES, id="gradients-reentrant", marks=pytest.mark.torture),
    ],
)
def test_a_checkpoint_in_a_compiled_region_is_captured_once(tmp_path: Path, reentrant: bool, values: list[str]) -> None:
    ours = recorded(tmp_path / "ours", values, (reentrant,), lambda model: torch.compile(model, backend="aot_eager"))
    equal(ours, recorded(tmp_path / "plain", values))


@compiles_with_hooks
@has_inductor
def test_gradients_through_inductor_are_those_of_the_plain_model(tmp_path: Path) -> None:
    # inductor has a tanh of its own. Each of the 150 roundings of a step grows by 2 at most (the sums of rows of weights) in each of six
    # products, and by as much in the two steps behind it.
    bound = after(3 * 150, U64) * 2**18
    ours = recorded(tmp_path / "ours", VALUES, wrap=torch.compile, dtype=torch.float64)
    equal(ours, recorded(tmp_path / "plain", VALUES, dtype=torch.float64), bound)


@compiles_with_hooks
def test_two_calls_in_one_compiled_function_are_two_calls_of_one_microstep(tmp_path: Path) -> None:
    def twice(model: Stack) -> Any:
        return torch.compile(lambda x: model(x) + model(2 * x), backend="eager")

    ours = recorded(tmp_path / "ours", ["output"], wrap=twice)
    clocks = ours["p", "last"].clocks
    assert list(zip(clocks["microstep"].tolist(), clocks["call"].tolist(), strict=True)) == [(0, 0), (0, 1)] * 3


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("values", [["output"], ["input"]])
def test_a_compiled_function_around_the_model_is_refused_at_its_first_call_if_torch_drops_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fullgraph: bool, values: list[str]
) -> None:
    monkeypatch.setattr(compiled, "DROPS_HOOKS", True)
    model, calls = Stack(), list[Tensor]()
    call = torch.compile(lambda x: model(x), backend="eager", fullgraph=fullgraph)
    spec = {"version": 1, "probes": {"p": {"modules": ["first", "last"], "values": values}}}
    with (
        pytest.raises(Exception, match=r"compiled calls the probed model, and torch \S+ drops hooks .* leave out `torch.compile`"),
        probes.attach(model, spec, out=tmp_path) as run,
    ):
        calls += [call(x) for x in run.steps([X] * 3)]
    assert calls == []
    assert call(X).shape == (3, 4)
    assert not model.first._forward_hooks


def test_an_export_continues_without_hooks_if_torch_drops_them_and_other_calls_are_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "DROPS_HOOKS", True)
    model = Stack()
    with probes.attach(model, {"version": 1, "probes": {"p": {"modules": ["first"], "values": ["output"]}}}, out=tmp_path) as run:
        for x in run.steps([X] * 2):
            torch.export.export(model, (x,), strict=True)
            copy.deepcopy(model)(x)
            model(x)
    assert len(probes.open(tmp_path)["p", "first"].torch()) == 2
