"""Which gradients are stored, which are counted as lost, and with which clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import probes
from probes.errors import RunError
from tests.runner.capturing import Block, batches, clocks, record, same, train


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Rewriting(nn.Module):
    """`Linear` on 3-D input returns a view, which the in-place ReLU then rewrites."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x.unsqueeze(0).expand(2, -1, -1))
        torch.relu_(hidden)
        return self.b(hidden)


def test_a_linear_whose_output_is_a_view_keeps_its_gradient_through_an_in_place_operation(tmp_path: Path) -> None:
    saved: list[Tensor] = []
    model = Rewriting()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    handle = model.a.register_forward_hook(lambda m, a, o: o.clone())  # a copy is no view; its gradient is the output's

    def arm(_m: nn.Module, _a: Any, output: Tensor) -> None:
        output.register_hook(lambda grad: saved.append(grad.clone()))

    second = model.a.register_forward_hook(arm)
    train(model, batches())
    handle.remove()
    second.remove()
    model.load_state_dict(state)
    same(record(model, tmp_path, hook="backward", modules=["a"])["p", "a"], saved)


class Slicing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()
        self.b = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.part(x * self.b.weight.sum())
        torch.relu_(hidden)
        return self.b(hidden)


class Part(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[1:]


def test_a_gradient_lost_to_an_in_place_operation_is_counted_with_that_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="lost in-place 3 times"):
        record(Slicing(), tmp_path, hook="backward", modules=["part"])


def test_a_gradient_that_nothing_depends_on_is_counted_as_unused(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(4, 2)
            self.unused = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.unused(x)
            return self.used(x)

    with pytest.raises(RunError, match="3 times unused output"):
        record(Two(), tmp_path, hook="backward", modules=["unused"])


def test_a_frozen_backbone_has_no_gradients_and_the_summary_reports_it(tmp_path: Path) -> None:
    model = Block()
    model.a.requires_grad_(False)
    with pytest.raises(RunError, match="3 times frozen"):
        record(model, tmp_path, hook="backward", modules=["a"])


def test_two_calls_of_a_module_differ_in_call(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(self.a(x))

    read = record(Twice(), tmp_path, modules=["a"], values=["output", "grad_output"])
    assert [clock.call for clock in clocks(read["p", "a", "output"])] == [0, 1] * 3
    assert [clock.call for clock in clocks(read["p", "a", "grad_output"])] == [0, 1] * 3
    first = record(Twice(), tmp_path / "first", hook="forward", modules=["a"], when={"calls": {"at": [1]}})
    assert [clock.call for clock in clocks(first["p", "a"])] == [1] * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_stores_each_value_and_gradient_once_with_the_first_passes_clock(tmp_path: Path, reentrant: bool) -> None:
    class Segmented(nn.Module):
        def __init__(self, checkpointed: bool) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.checkpointed = checkpointed

        def part(self, x: Tensor) -> Tensor:
            return self.b(torch.tanh(self.b(x)))

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            for _ in range(2):
                x = checkpoint(self.part, x, use_reentrant=reentrant) if self.checkpointed else self.part(x)
            return x

    def passes(model: nn.Module, data: Any) -> None:
        for x in data:  # without updates: a checkpoint sums the gradients of weights in another order, so they round otherwise
            model(x).square().mean().backward()

    plain = record(Segmented(False), tmp_path / "plain", loop=passes, modules=["a", "b"], values=["output", "grad_output"])
    ours = record(Segmented(True), tmp_path / "ours", loop=passes, modules=["a", "b"], values=["output", "grad_output"])
    for target in ("a", "b"):
        for leaf in ("output", "grad_output"):
            assert clocks(ours["p", target, leaf]) == clocks(plain["p", target, leaf])
            assert torch.equal(ours["p", target, leaf].torch(), plain["p", target, leaf].torch())


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_the_whole_model_stores_the_same_as_none(tmp_path: Path, reentrant: bool) -> None:
    def checkpointed(model: nn.Module, data: Any) -> None:
        for x in data:
            checkpoint(model, x.requires_grad_(), use_reentrant=reentrant).square().mean().backward()

    def plain(model: nn.Module, data: Any) -> None:
        for x in data:
            model(x).square().mean().backward()

    def stored(loop: Any, name: str) -> Any:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
        return record(model, tmp_path / name, loop=loop, modules=["0", "2"], values=["output", "grad_output"])

    ours, other = stored(checkpointed, "ours"), stored(plain, "plain")
    for target in ("0", "2"):
        for leaf in ("output", "grad_output"):
            assert clocks(ours["p", target, leaf]) == clocks(other["p", target, leaf])
            assert torch.equal(ours["p", target, leaf].torch(), other["p", target, leaf].torch())


def test_double_backward_and_a_retained_graph_count_the_firings(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            loss = model(x).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="backward", modules=["0"])
    assert [clock.backward for clock in clocks(read["p", "0"])] == [0, 1] * 3


def test_a_late_gradient_keeps_the_clock_of_its_forward(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        before = None
        for x in data:
            loss = model(x).square().mean()
            if before is not None:
                before.backward()
            before = loss

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="backward", modules=["0"])
    assert [clock.step for clock in clocks(read["p", "0"])] == [0, 1]


def test_gradient_accumulation_counts_microsteps(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    with probes.attach(model, {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}, out=tmp_path / "run") as run:
        for x in run.steps(batches(4), accumulate=2):
            model(x).sum().backward()
    found = clocks(probes.open(tmp_path / "run")["p", "0"])
    assert [(clock.step, clock.microstep) for clock in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_an_accumulated_gradient_that_the_program_has_taken_before_is_absent_with_the_reason(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    spec = {"version": 1, "probes": {"p": {"tensors": ["weight"], "stage": "accumulated"}, "q": {"tensors": ["weight"], "stage": "final"}}}
    run = probes.attach(model, spec, out=tmp_path / "r")
    run.__enter__()
    for x in run.steps(torch.randn(3, 2, 3)):
        model(x).sum().backward()
    with pytest.raises(RunError, match=r"`grad` of `weight` absent 3 times: a hook of the program ran before and set the gradient to None"):
        run.close()
    assert [(series.key.probe, len(series)) for series in probes.open(tmp_path / "r").series] == [("q", 3)]
