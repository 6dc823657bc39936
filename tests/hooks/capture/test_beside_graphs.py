"""Functions of probes that run beside compiled code: dynamo compiles none of them by itself, and what they capture is right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.convert_frame import input_codes
from torch.utils.data import DataLoader

import probes
from tests.old_torch import compiles_with_hooks

pytestmark = compiles_with_hooks

ROOT = str(Path(probes.__file__).parent)
SPEC: dict[str, Any] = {
    "version": 1,
    "allow_edits": True,
    "probes": {
        "v": {"hook": "forward", "modules": ["*"]},
        "i": {"hook": "pre-forward", "modules": ["b"]},
        "g": {"hook": "backward", "modules": ["relu"], "values": ["grad_output", "grad_input"]},
        "w": {"hook": "tensor", "tensors": ["*.weight"], "values": ["grad"]},
        "l": {"values": ["loop.loss"]},
        "e": {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 0.5}},
    },
}


class Net(nn.Module):
    """Its graph depends on a number, so that there is one for each of its values."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.relu = nn.ReLU()
        self.b = nn.Linear(4, 2)

    def forward(self, x: Tensor, power: int = 1) -> Tensor:
        return self.b(self.relu(self.a(x))) ** power


class Training:
    """A training in three forms: of one batch, of a pass over a loader, and of a pass that the run sees."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu")
        self.data = DataLoader(torch.randn(8, 4), batch_size=2)  # type: ignore[arg-type]  # a tensor is a dataset too

    def batch(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def over_the_loader(self, _run: Any) -> None:
        for x in self.data:
            self.batch(x)

    def over_the_loader_with_a_scaler(self, _run: Any) -> None:
        for x in self.data:
            self.optimizer.zero_grad()
            self.scaler.scale(self.model(x).square().mean()).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def in_steps_of_the_run(self, run: Any) -> None:
        for x in run.steps(self.data):
            run.log(loss=self.batch(x))

    def in_a_step_and_a_phase(self, run: Any) -> None:
        for x in self.data:
            with run.step():
                run.log(loss=self.batch(x))
            with run.phase("eval"), torch.no_grad():
                self.model(x)

    def of_many_kinds(self, run: Any) -> None:
        for power, x in enumerate(run.steps(self.data)):
            self.optimizer.zero_grad()
            self.model(x, power).square().mean().backward()
            self.optimizer.step()


def plain(function: Callable[..., None]) -> Callable[..., None]:
    return function


def record(path: Path, form: str, compiled: Callable[..., Any]) -> tuple[Any, dict[str, Tensor]]:
    training = Training()
    if form == "of_many_kinds":
        model = training.model
        model.forward = compiled(model.forward)  # type: ignore[method-assign]  # as a program that compiles a part of its model
        compiled = plain
    spec = SPEC if form.startswith("in_") else {**SPEC, "probes": {name: probe for name, probe in SPEC["probes"].items() if name != "l"}}
    with probes.attach(training.model, spec, out=path) as run:
        epoch = compiled(getattr(training, form))
        for _ in run.epochs(2):
            epoch(run)
    return probes.open(path), training.model.state_dict()


@pytest.fixture(autouse=True)
def said() -> Iterator[list[warnings.WarningMessage]]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=2), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "form",
    ["over_the_loader", "over_the_loader_with_a_scaler", "in_steps_of_the_run", "in_a_step_and_a_phase", "of_many_kinds"],
)
def test_no_function_of_probes_is_compiled_by_itself_and_captures_are_right(
    tmp_path: Path, form: str, said: list[warnings.WarningMessage]
) -> None:
    ours, weights = record(tmp_path / "compiled", form, torch.compile(backend="eager"))
    seen = [code for reference in input_codes.seen if (code := reference()) is not None]
    assert any(code.co_filename == __file__ for code in seen)
    assert [f"{code.co_filename}:{code.co_firstlineno}" for code in seen if code.co_filename.startswith(ROOT)] == []
    assert not [one for one in said if "does not know how to trace" in str(one.message)]
    theirs, expected = record(tmp_path / "plain", form, plain)
    assert [str(series.key) for series in ours.series] == [str(series.key) for series in theirs.series]
    for one, other in zip(ours.series, theirs.series, strict=True):
        assert [capture.clock for capture in one] == [capture.clock for capture in other], one.key
        assert all(bool((a.value == b.value).all()) for a, b in zip(one, other, strict=True)), one.key
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
