"""Memory around a module's call, on an allocator that the test writes itself; on an accelerator it is torch's."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import PlanError, RunError
from probes.hooks.memory import MemoryMeter
from probes.spec.spec_files import preset_folder

DEVICE = torch.device("cpu")


class Allocator:
    """Counts as `torch.cuda` does."""

    def __init__(self) -> None:
        self.now = self.most = 1000

    def take(self, nbytes: int) -> None:
        self.now += nbytes
        self.most = max(self.most, self.now)

    def memory_allocated(self, device: object) -> int:
        return self.now

    def max_memory_allocated(self, device: object) -> int:
        return self.most

    def reset_peak_memory_stats(self, device: object) -> None:
        self.most = self.now


class Layer(nn.Module):
    """Keeps some bytes and needs more for a while, before and after what it holds."""

    def __init__(self, allocator: Allocator, kept: int, passing: int, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.allocator = allocator
        self.kept = kept
        self.passing = passing
        self.inner = inner
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.allocator.take(self.passing)
        self.allocator.take(-self.passing)
        if self.inner is not None:
            x = self.inner(x)
        self.allocator.take(self.kept)
        return x * self.weight


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    found = Allocator()
    for place in ("probes.plan.checks.memory_counters", "probes.runner.attached.taps.memory_counters"):
        monkeypatch.setattr(place, lambda device: found)
    return found


def record(model: nn.Module, out: Path, steps: int = 2, **probe: Any) -> Any:
    spec = {"version": 1, "probes": {"memory": {"modules": ["**"], "values": ["memory"], **probe}}}
    with probes.attach(model, spec, out=out) as run, run.epoch(0):
        for _ in range(steps):
            with run.step():
                model(torch.ones(2))
    return probes.open(out)


def test_nested_calls_each_have_their_own_numbers(allocator: Allocator, tmp_path: Path) -> None:
    model = nn.Sequential(Layer(allocator, kept=10, passing=500, inner=Layer(allocator, kept=30, passing=700)), Layer(allocator, -40, 1))
    read = record(model, tmp_path / "run")
    assert read["memory", "0"].signature.coords["memory"] == ("before", "allocated", "peak")
    assert read["memory", "0"].numpy().tolist() == [[1000, 40, 700], [1000, 40, 700]]
    assert read["memory", "0.inner"].numpy().tolist() == [[1000, 30, 700], [1000, 30, 700]]
    assert read["memory", "1"].numpy().tolist() == [[1040, -40, 1], [1040, -40, 1]]


def test_a_peak_after_a_nested_call_is_the_outer_ones_alone(allocator: Allocator) -> None:
    meter = MemoryMeter(allocator, DEVICE)
    outer = meter.enter(0, 0)
    inner = meter.enter(0, 0)
    allocator.take(5)
    assert meter.leave(inner) == (1000, 5, 5)
    allocator.take(100)
    allocator.take(-100)
    assert meter.leave(outer) == (1000, 5, 105)


def test_the_next_outermost_call_removes_the_state_of_a_call_that_raised(allocator: Allocator) -> None:
    meter = MemoryMeter(allocator, DEVICE)
    meter.enter(0, 0)
    allocator.take(7)
    frame = meter.enter(1, 0)
    assert meter.leave(frame) == (1007, 0, 0)
    assert meter.running == []


def test_calls_on_two_threads_do_not_end_each_other(allocator: Allocator) -> None:
    meter = MemoryMeter(allocator, DEVICE)
    outer = meter.enter(0, 0)
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(meter.enter, 1, 0).result()
        allocator.take(5)
        assert meter.leave(outer) == (1000, 5, 5)
        assert other.submit(meter.leave, theirs).result() == (1000, 5, 5)
    assert meter.running == []


class Halves(nn.Module):
    """Calls itself on half of its input, and continues if that raises."""

    def __init__(self, allocator: Allocator, raises: bool) -> None:
        super().__init__()
        self.allocator = allocator
        self.raises = raises
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.allocator.take(x.numel())
        if x.numel() > 1:
            with suppress(ValueError):
                self(x[: x.numel() // 2])
        elif self.raises:
            raise ValueError("too small")
        self.allocator.take(1)
        return x * self.weight


def test_a_call_within_another_of_the_same_module_that_raised_does_not_give_its_numbers_to_the_outer_one(
    allocator: Allocator, tmp_path: Path
) -> None:
    read = record(nn.Sequential(Halves(allocator, raises=True)), tmp_path / "run", steps=1, expect={"fires": "some"})
    assert read["memory", "0"].numpy().tolist() == [[1000, 4, 4]]
    assert read["memory", "0"].clocks["call"].tolist() == [0]


def test_a_call_that_is_not_due_does_not_end_the_call_around_it(allocator: Allocator, tmp_path: Path) -> None:
    model = nn.Sequential(Halves(allocator, raises=False))
    read = record(model, tmp_path / "run", steps=1, when={"calls": {"at": [0]}})
    assert read["memory", "0"].numpy().tolist() == [[1000, 5, 5]]


def test_an_allocator_that_raises_does_not_end_the_training(allocator: Allocator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: object) -> None:
        raise RuntimeError("no counters now")

    monkeypatch.setattr(allocator, "reset_peak_memory_stats", broken)
    model = nn.Sequential(Layer(allocator, 1, 9))
    run = probes.attach(model, {"version": 1, "probes": {"memory": {"modules": ["**"], "values": ["memory"]}}}, out=tmp_path / "run")
    with pytest.raises(RunError, match="no counters now"), run, run.epoch(0), run.step():
        assert model(torch.ones(2)).tolist() == [1, 1]


def test_numbers_are_on_the_host_also_if_the_program_sets_another_default_device(allocator: Allocator, tmp_path: Path) -> None:
    model = nn.Sequential(Layer(allocator, kept=10, passing=500))
    spec = {"version": 1, "probes": {"memory": {"modules": ["**"], "values": ["memory"]}}}
    x = torch.ones(2)
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.epoch(0), run.step(), torch.device("meta"):
        model(x)
    assert probes.open(tmp_path / "run")["memory", "0"].numpy().tolist() == [[1000, 10, 500]]


def test_every_call_of_a_shared_module_is_counted(allocator: Allocator, tmp_path: Path) -> None:
    layer = Layer(allocator, kept=3, passing=0)
    read = record(nn.Sequential(layer, layer), tmp_path / "run", steps=1)
    assert read["memory", "0"].numpy().tolist() == [[1000, 3, 3], [1003, 3, 3]]
    assert read["memory", "0"].clocks["call"].tolist() == [0, 1]


def test_the_schedule_and_transforms_hold_as_for_any_value(allocator: Allocator, tmp_path: Path) -> None:
    chosen = [{"kind": "select", "dim": "memory", "index": 2}]
    read = record(nn.Sequential(Layer(allocator, 1, 9)), tmp_path / "run", steps=3, when={"steps": {"at": [1]}}, transforms=chosen)
    series = read["memory", "0"]
    assert (series.steps.tolist(), series.numpy().tolist()) == ([1], [9])


def test_copies_of_a_model_carry_nothing_of_probes(allocator: Allocator, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    spec = {"version": 1, "probes": {"memory": {"modules": ["0"], "values": ["memory"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.epoch(0), run.step():
        model(torch.ones(2))
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for one in copies:
        one(torch.ones(2))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("values", [["memory"], ["output", "memory"]])
def test_on_the_host_it_is_refused_with_the_reason(values: list[str]) -> None:
    spec = {"version": 1, "probes": {"p": {"modules": ["0"], "values": values}}}
    with pytest.raises(PlanError, match="the model is on `cpu`, which has none") as caught:
        probes.resolve(spec, nn.Sequential(nn.Linear(2, 2)))
    assert [problem.code for problem in caught.value.problems] == ["memory-not-counted"]


def test_the_preset_is_refused_on_the_host_too() -> None:
    assert (preset_folder() / "memory-by-module.yaml").exists()
    with pytest.raises(PlanError, match=r"move the model to its device before the probes are attached"):
        probes.resolve("preset:memory-by-module", nn.Sequential(nn.Linear(2, 2)))


def test_a_compiled_module_is_refused(allocator: Allocator) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.compile(backend="eager")
    with pytest.raises(PlanError, match="the memory of single modules cannot be measured in a graph"):
        probes.resolve({"version": 1, "probes": {"p": {"modules": ["0"], "values": ["memory"]}}}, model)


def test_the_plan_notes_that_the_devices_peak_counter_is_reset(allocator: Allocator) -> None:
    plan = probes.resolve({"version": 1, "probes": {"p": {"modules": ["0"], "values": ["memory"]}}}, nn.Sequential(nn.Linear(2, 2)))
    assert [note.code for note in plan.notes] == ["memory-peak"]
    assert str(plan.bindings[0].stored) == "int64[memory=3]"
