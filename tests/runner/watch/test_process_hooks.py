from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.module import register_module_module_registration_hook
from torch.optim import SGD
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import probes
from probes.runner.watch.process_hooks import ProcessHook

SPEC = {
    "version": 1,
    "probes": {
        "out": {"hook": "forward", "modules": ["0"]},
        "update": {"hook": "tensor", "tensors": ["0.weight"], "values": ["update"]},
    },
}


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Threads that are switched after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3))


def stepped(model: nn.Module) -> None:
    optimizer = SGD(model.parameters(), 0.1)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def run_of(path: Path, model: nn.Module) -> None:
    with probes.attach(model, SPEC, out=path) as run, run.epoch(0), run.step():
        stepped(model)


@pytest.mark.parametrize(
    ("register", "reach"),
    [
        (register_optimizer_step_pre_hook, stepped),
        (register_optimizer_step_post_hook, stepped),
        (register_module_module_registration_hook, lambda model: model.add_module("aside", nn.Identity())),
    ],
    ids=["before a step", "after a step", "assigned"],
)
def test_runs_of_other_threads_begin_and_end_while_pytorch_calls_its_hooks(
    tmp_path: Path, register: Callable[..., object], reach: Callable[[nn.Module], None]
) -> None:
    within, goes_on, raised = Event(), Event(), []

    def wait(*_args: object) -> None:
        if threading.current_thread() is other:
            within.set()
            goes_on.wait(20)

    def train() -> None:
        try:
            reach(small())
        except RuntimeError as error:
            raised.append(error)

    other = Thread(target=train)
    model, handle = small(), register(wait)
    with probes.attach(model, SPEC, out=tmp_path / "kept") as run:
        with run.epoch(0), run.step():
            stepped(model)
        other.start()
        assert within.wait(20)
        run_of(tmp_path / "aside", small())
    goes_on.set()
    other.join()
    handle.remove()  # type: ignore[attr-defined]  # a handle of torch
    assert not raised


def test_threads_that_each_train_a_model_capture_every_step_of_it(tmp_path: Path, often_switched: None) -> None:
    failed: list[BaseException] = []

    def train(number: int) -> None:
        try:
            for again in range(3):
                model = small()
                with probes.attach(model, SPEC, out=tmp_path / f"{number}-{again}") as run, run.epoch(0):
                    for _ in run.steps(range(4)):
                        stepped(model)
        except BaseException as error:  # raised again in the test
            failed.append(error)

    threads = [Thread(target=train, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    runs = [probes.open(path) for path in sorted(tmp_path.iterdir())]
    assert [(len(run["out", "0"]), len(run["update", "0.weight"])) for run in runs] == [(4, 4)] * 12


def test_no_hook_is_left_after_runs_without_threads(tmp_path: Path) -> None:
    run_of(tmp_path / "threads may have left the hooks", small())
    run_of(tmp_path / "a", small())
    tables = [
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
        torch_module._global_module_registration_hooks,
        torch_module._global_parameter_registration_hooks,
    ]
    assert not any(tables) or threading.active_count() > 1


def test_a_hook_is_registered_once_and_listeners_leave_alone() -> None:
    registered: list[Callable[..., None]] = []

    class Handle:
        def remove(self) -> None:
            registered.clear()

    def register(hook: Callable[..., None]) -> Handle:
        registered.append(hook)
        return Handle()

    heard: list[str] = []
    hook = ProcessHook(register)
    stop_first = hook.add(lambda what: heard.append(f"first {what}"))
    stop_second = hook.add(lambda what: heard.append(f"second {what}"))
    assert len(registered) == 1
    registered[0]("a")
    stop_first()
    stop_first()
    registered[0]("b")
    assert heard == ["first a", "second a", "second b"]
    called = registered[0]
    stop_second()
    called("c")
    assert heard[3:] == []
    assert registered == [] or threading.active_count() > 1
