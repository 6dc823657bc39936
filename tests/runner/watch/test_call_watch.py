"""The calls about which the watch over `Module.__call__` asks its listeners, and those that it passes on directly."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probes.hooks.capture.run_state import OutermostCall, StepState
from probes.runner.watch.call_watch import NO_NUMBERS, CallNumbers, CallWatch, calls_call_impl

X = torch.ones(2)


class Listener:
    """Takes the calls of some modules for outermost ones, and ignores all modules that it does not wait for."""

    def __init__(self, *meant: nn.Module, waits: bool = False) -> None:
        self.meant = meant
        self.waits = waits
        self.asked: list[nn.Module] = []
        self.left: list[bool] = []
        self.error: Exception | None = None

    def call_enters(self, module: nn.Module) -> CallNumbers | None:
        self.asked.append(module)
        if self.error is not None:
            raise self.error
        return NO_NUMBERS if any(module is one for one in self.meant) else None

    def call_leaves(self, *, raised: bool) -> None:
        self.left.append(raised)

    def ignores(self, module: nn.Module) -> bool:
        return not self.waits and not any(module is one for one in self.meant)


class Raising(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyboardInterrupt


@pytest.fixture
def watch() -> Iterator[CallWatch]:
    found = CallWatch()
    before = nn.Module.__call__
    yield found
    for listener in found.listeners:
        found.remove(listener)
    assert nn.Module.__call__ is before


def test_listeners_are_asked_once_about_a_module_that_all_ignore(watch: CallWatch) -> None:
    loss, model = nn.Sequential(nn.Identity()), nn.Sequential(nn.Identity())
    listener = Listener(model)
    watch.add(listener)
    for _ in range(3):
        loss(model(X))
    assert listener.asked == [model, loss, loss[0], model, model]
    assert listener.left == [False] * 3


def test_listeners_are_asked_at_every_call_about_a_module_that_one_waits_for(watch: CallWatch) -> None:
    loss = nn.Identity()
    listeners = Listener(), Listener(waits=True)
    for listener in listeners:
        watch.add(listener)
    for _ in range(3):
        loss(X)
    assert [len(listener.asked) for listener in listeners] == [3, 3]


def test_listeners_are_asked_about_an_ignored_module_again_on_request_or_for_a_new_listener(watch: CallWatch) -> None:
    loss, first = nn.Identity(), Listener()
    watch.add(first)
    loss(X)
    first.meant = (loss,)
    loss(X)
    assert first.left == []
    watch.forget()
    loss(X)
    second = Listener(loss)
    first.meant = ()
    watch.add(second)
    loss(X)
    assert (first.left, second.left) == ([False], [False])


def test_listeners_are_asked_about_a_module_that_gets_the_id_of_an_ignored_one(watch: CallWatch) -> None:
    listener = Listener()
    watch.add(listener)
    again = False
    for _ in range(200):
        listener.asked.clear()
        module = nn.Identity()
        module(X)
        again = again or listener.asked == [module]
        assert listener.asked == [module]
        listener.asked.clear()
        del module
        gc.collect(0)
    assert again


def test_another_listener_gets_calls_within_the_call_of_one_listener(watch: CallWatch) -> None:
    inner = nn.Sequential(nn.Identity())
    outer = nn.Sequential(inner, nn.Identity())
    first, second = Listener(outer), Listener(inner)
    watch.add(first)
    watch.add(second)
    for _ in range(2):
        outer(X)
    assert first.asked == [outer, outer]
    assert second.asked == [outer, inner, outer[1], outer, inner]
    assert (first.left, second.left) == ([False] * 2, [False] * 2)


@pytest.mark.parametrize("by_hand", [False, True])
def test_any_exception_of_a_call_is_noticed_and_the_next_call_is_an_outermost_one(watch: CallWatch, by_hand: bool) -> None:
    model = nn.Sequential(Raising())
    call = model.__call__
    listener = Listener(model)
    watch.add(listener)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            (call if by_hand else model)(X)
    assert listener.left == ([] if by_hand else [True, True])


def test_a_listener_that_raises_ends_the_call_for_all_listeners(watch: CallWatch) -> None:
    model = nn.Identity()
    first, second = Listener(model), Listener(model)
    watch.add(first)
    watch.add(second)
    second.error = ValueError("second")
    with pytest.raises(ValueError, match="second"):
        model(X)
    second.error = None
    model(X)
    assert first.left == [True, False]
    assert second.left == [False]


def test_a_call_that_was_bound_during_a_listener_works_after_it_and_for_the_next_listener(watch: CallWatch) -> None:
    model = nn.Identity()
    first, second = Listener(model), Listener(model)
    watch.add(first)
    call = model.__call__
    watch.remove(first)
    assert call(X) is X
    watch.add(second)
    assert call(X) is X
    assert (first.left, second.left) == ([], [False])


def test_a_replacement_of_module_call_by_another_tool_continues_to_run(watch: CallWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    torchs = nn.Module.__call__
    assert calls_call_impl(torchs)
    seen: list[nn.Module] = []

    def noting(module: nn.Module, *args: object, **kwargs: object) -> object:
        seen.append(module)
        return torchs(module, *args, **kwargs)

    assert not calls_call_impl(noting)
    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "__call__", noting)
        listener = Listener()
        watch.add(listener)
        module = nn.Identity()
        module(X)
        module(X)
        watch.remove(listener)
        assert nn.Module.__call__ is noting
    assert seen == [module, module]


def test_a_tool_that_puts_back_what_it_found_before_the_listener_came_takes_no_calls_away(
    watch: CallWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchs = nn.Module.__call__
    seen: list[nn.Module] = []

    def noting(module: nn.Module, *args: object, **kwargs: object) -> object:
        seen.append(module)
        return before(module, *args, **kwargs)

    module = nn.Identity()
    listener = Listener(module)
    with monkeypatch.context() as patch:
        for turn in range(3):
            before = nn.Module.__call__
            patch.setattr(nn.Module, "__call__", noting)  # turn 0: before the listener comes; then around it
            if turn == 0:
                watch.add(listener)
            watch.renew()
            module(X)
            patch.setattr(nn.Module, "__call__", before)
            watch.renew()
            module(X)
        assert len(listener.left) == 6
        assert seen == [module] * 3
        watch.remove(listener)
        watch.renew()
        assert nn.Module.__call__ is torchs
        module(X)
    assert len(listener.left) == 6


def test_a_tool_that_replaces_the_replacement_sees_each_call_once(watch: CallWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Identity()
    listener, seen = Listener(module), []
    watch.add(listener)
    before = nn.Module.__call__

    def noting(module: nn.Module, *args: object, **kwargs: object) -> object:
        seen.append(module)
        return before(module, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "__call__", noting)
        for _ in range(3):
            watch.renew()
            module(X)
    assert seen == [module] * 3
    assert len(listener.left) == 3
    watch.renew()
    module(X)
    assert len(listener.left) == 4
    watch.remove(listener)


@pytest.mark.parametrize("beside", [0, 1, 2])
def test_a_call_whose_number_one_of_several_listeners_wants_is_passed_on_directly(watch: CallWatch, beside: int) -> None:
    part = nn.Linear(2, 2)
    model = nn.Sequential(part, part)
    at = OutermostCall(0, "train", 0, 0, StepState(), frozenset([id(part)]))
    names: list[str] = []

    class Numbering(Listener):
        def call_enters(self, module: nn.Module) -> CallNumbers | None:
            return at if super().call_enters(module) is not None else None

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_locals.get("self") is part and frame.f_code.co_name in ("__call__", "_wrapped_call_impl"):
            names.append(frame.f_code.co_name)

    for listener in (Numbering(model), *(Listener(model) for _ in range(beside))):
        watch.add(listener)
    sys.setprofile(called)
    try:
        model(X)
    finally:
        sys.setprofile(None)
    assert at.drawn == {id(part): 2}
    assert at.running == {}
    assert names == ["__call__"] * 2
