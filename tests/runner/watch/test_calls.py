"""The number of a module's call, against hooks by hand: in recursion, after exceptions that the forward caught, and from threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import RunError

VALUES = {"modules": ["inner"], "values": ["input", "output", "grad_output"], "expect": {"fires": "some"}}


class Recursive(nn.Module):
    """A module that calls itself twice before it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor, depth: int = 2) -> Tensor:
        return self.fc(self(x, depth - 1) if depth else x) + depth


class Catching(nn.Module):
    """A module whose second of three calls raises."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls % 3 == 2:
            raise ValueError
        return self.fc(x) * self.calls


class Outer(nn.Module):
    def __init__(self, inner: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.inner = inner
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        total = x
        for _ in range(self.times):
            try:
                total = total + self.inner(total)
            except ValueError:
                total = total * 2
        return total


def by_hand(inner: nn.Module) -> dict[tuple[str, int], Tensor]:
    """What a forward patched by hand sees: inputs, outputs and gradients by the number of the call that entered."""
    seen: dict[tuple[str, int], Tensor] = {}
    forward, entered = inner.forward, [0]

    def watched(x: Tensor, *args: Any) -> Tensor:
        number = entered[0]
        entered[0] += 1
        seen["input", number] = x.detach().clone()
        output: Tensor = forward(x, *args)
        seen["output", number] = output.detach().clone()
        output.register_hook(lambda grad: seen.__setitem__(("grad_output", number), grad.clone()))
        return output

    inner.forward = watched
    return seen


@pytest.mark.parametrize("model", [lambda: Outer(Recursive()), lambda: Outer(Catching(), 3)], ids=["recursion", "exception"])
def test_inputs_outputs_and_gradients_of_a_call_have_one_number(tmp_path: Path, model: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    net: Any = model()
    spec = {"version": 1, "probes": {"p": VALUES}}
    x = torch.randn(2, 3)
    with probes.attach(net, spec, out=tmp_path / "r") as run, run.step():
        seen = by_hand(net.inner)
        net(x).sum().backward()
    read = probes.open(tmp_path / "r")
    for leaf, name in (("input.x", "input"), ("output", "output"), ("grad_output", "grad_output")):
        captured = {capture.clock.call: capture.value for capture in read["p", "inner", leaf]}
        expected = {number: value for (kind, number), value in seen.items() if kind == name}
        assert captured.keys() == expected.keys()
        assert all((captured[number] == expected[number].numpy()).all() for number in expected)


def test_calls_of_one_module_are_counted_from_zero_in_each_outermost_call(tmp_path: Path) -> None:
    net = Outer(Recursive())
    spec = {"version": 1, "probes": {"p": VALUES}}
    with probes.attach(net, spec, out=tmp_path / "r") as run, run.step():
        for _ in range(2):
            net(torch.ones(2, 3)).sum().backward()
    clocks = [(capture.clock.microstep, capture.clock.call) for capture in probes.open(tmp_path / "r")["p", "inner", "input.x"]]
    assert clocks == [(microstep, call) for microstep in range(2) for call in range(3)]


def test_a_hook_that_runs_the_model_in_another_thread_pairs_values_of_its_thread(tmp_path: Path) -> None:
    """Eight requests at once: each is a step of its own, and its input, output and number belong together."""
    together = threading.Barrier(4)

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            together.wait(30)
            return x * 2

    net = nn.Sequential(nn.Identity(), Slow(), nn.Identity()).eval()
    spec = {"version": 1, "probes": {"p": {"modules": ["0", "2"], "values": ["input", "output"], "when": {"phases": ["eval"]}}}}
    with probes.attach(net, spec, out=tmp_path / "r") as run:
        assert run.next_epoch == 0

        def request(number: int) -> None:
            with torch.no_grad():
                net(torch.full((2,), float(number)))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(request, range(8)))
    read = probes.open(tmp_path / "r").sel(phase="eval")
    first = {capture.clock.step: float(capture.value[0]) for capture in read["p", "0", "input.input"]}
    assert sorted(first) == list(range(8))
    assert sorted(first.values()) == list(range(8))
    for target, leaf, factor in (("0", "output", 1), ("2", "input.input", 2), ("2", "output", 2)):
        captured = {capture.clock.step: float(capture.value[0]) for capture in read["p", target, leaf]}
        assert captured == {step: value * factor for step, value in first.items()}
    assert probes.verify(tmp_path / "r").ok


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that interrupt each other all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("times", [10, pytest.param(500, marks=pytest.mark.torture)])
def test_a_request_that_overlapped_is_not_reported_as_missing_when_its_step_ends_late(
    tmp_path: Path, hasty_threads: None, times: int
) -> None:
    for number in range(times):
        scheduled(tmp_path / str(number))


def test_a_schedule_decides_for_each_of_the_requests_that_overlap(tmp_path: Path) -> None:
    read = probes.open(scheduled(tmp_path / "r")).sel(phase="eval")
    assert sorted(capture.clock.step for capture in read["p", "1"]) == [0, 2, 4, 6]


def scheduled(out: Path) -> Path:
    """A run of eight requests on four threads, of which every second is due."""
    together = threading.Barrier(4)

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            together.wait(30)
            return x

    net = nn.Sequential(Slow(), nn.Identity()).eval()
    probe = {"modules": ["1"], "values": ["output"], "when": {"phases": ["eval"], "steps": {"every": 2}}}
    with probes.attach(net, {"version": 1, "probes": {"p": probe}}, out=out), torch.no_grad(), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: net(torch.full((2,), float(number))), range(8)))
    return out


def test_a_value_that_is_missing_in_a_step_of_two_threads_is_reported(tmp_path: Path) -> None:
    together = threading.Barrier(2)

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.never = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            together.wait(30)
            return x

    net, probe = Skips(), {"modules": ["", "never"], "values": ["output"]}
    with (
        pytest.raises(RunError, match="`never` is missing in 1 of 1 steps"),
        probes.attach(net, {"version": 1, "probes": {"p": probe}}, out=tmp_path / "r") as run,
        ThreadPoolExecutor(2) as pool,
        run.step(),
    ):
        list(pool.map(net, [torch.ones(2), torch.ones(2)]))
