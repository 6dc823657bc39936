from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.optim import SGD, Optimizer, optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from probes.runner.watch.process_hooks import ProcessHook, is_in_a_step

REGISTER = {"before": register_optimizer_step_pre_hook, "after": register_optimizer_step_post_hook}

TABLES = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)


def registered(hook: ProcessHook) -> bool:
    return any(one == hook._called for table in TABLES for one in table.values())


@pytest.fixture(params=["before", "after"])
def hook(request: pytest.FixtureRequest) -> Iterator[ProcessHook]:
    hook = ProcessHook(REGISTER[request.param], is_in_a_step)
    yield hook
    assert registered(hook) == (threading.active_count() > 1)  # the runner of the tests may have threads
    for table in TABLES:
        for number in [number for number, one in table.items() if one == hook._called]:
            del table[number]


@pytest.fixture
def sgd() -> SGD:
    return SGD([torch.zeros(1, requires_grad=True)])


def test_a_listener_that_removes_others_does_not_break_the_step(hook: ProcessHook, sgd: SGD) -> None:
    heard, ends = list[str](), list[Callable[[], None]]()

    def end_all(*_: object) -> None:
        heard.append("ends")
        while ends:
            ends.pop()()

    ends.append(hook.add(end_all))
    ends.append(hook.add(lambda *_: heard.append("removed")))
    sgd.step()
    sgd.step()
    assert heard == ["ends"]
    hook.add(print)()  # outside of a step, which removes the hook


def test_a_listener_that_ends_within_the_step_of_a_closure_leaves_the_hook(hook: ProcessHook, sgd: SGD) -> None:
    end = hook.add(lambda *_: None)

    def closure() -> float:
        end()
        return 0.0

    sgd.step(closure)
    assert registered(hook)
    hook.add(print)()


def test_listeners_get_the_optimizer(hook: ProcessHook, sgd: SGD) -> None:
    seen: list[Optimizer] = []
    end = hook.add(lambda one, *_: seen.append(one))
    sgd.step()
    assert seen == [sgd]
    end()
