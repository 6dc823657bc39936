"""Listeners to starts of processes come and go in any order, and the method is as it was when the last has gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from multiprocessing.process import BaseProcess

import pytest

from probes.provenance.child_processes import Listener, ProcessStarts

BEFORE = BaseProcess.start


def listener(name: str, heard: list[str]) -> Listener:
    @contextmanager
    def listen(_: BaseProcess) -> Iterator[None]:
        heard.append(f"{name} before")
        yield
        heard.append(f"{name} after")

    return listen


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_listeners_are_removed_in_any_order_and_restore_the_method(order: tuple[int, ...]) -> None:
    starts, heard = ProcessStarts(), list[str]()
    listeners = [listener(str(number), heard) for number in range(3)]
    for one in listeners:
        starts.add(one)
    for number in order:
        assert BaseProcess.start is not BEFORE
        starts.remove(listeners[number])
    assert BaseProcess.start is BEFORE


def test_listeners_are_called_around_the_start_and_removed_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, heard = ProcessStarts(), list[str]()
    monkeypatch.setattr(BaseProcess, "start", lambda _: heard.append("start"))
    first, second = listener("a", heard), listener("b", heard)
    starts.add(first)
    starts.add(second)
    BaseProcess.start(object())  # type: ignore[arg-type]  # what is started does not matter
    starts.remove(first)
    BaseProcess.start(object())  # type: ignore[arg-type]  # as above
    starts.remove(second)
    BaseProcess.start(object())  # type: ignore[arg-type]  # as above
    assert heard == ["a before", "b before", "start", "b after", "a after", "b before", "start", "b after", "start"]


def test_a_method_that_the_program_has_replaced_is_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, heard = ProcessStarts(), list[str]()
    monkeypatch.setattr(BaseProcess, "start", lambda _: heard.append("start"))
    one = listener("a", heard)
    starts.add(one)
    ours = BaseProcess.start
    BaseProcess.start = lambda process: ours(process)  # type: ignore[method-assign]  # as a program may
    theirs = BaseProcess.start
    starts.remove(one)
    assert BaseProcess.start is theirs
    BaseProcess.start(object())  # type: ignore[arg-type]  # as above
    starts.add(one)
    BaseProcess.start(object())  # type: ignore[arg-type]  # as above
    assert heard == ["start", "a before", "start", "a after"]


def test_a_program_that_restores_the_earlier_method_does_not_disable_later_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, heard = ProcessStarts(), list[str]()
    monkeypatch.setattr(BaseProcess, "start", lambda _: heard.append("start"))
    found, one = BaseProcess.start, listener("a", heard)
    starts.add(one)
    BaseProcess.start = found  # type: ignore[method-assign]  # as `unittest.mock.patch` does at its end
    starts.remove(one)
    starts.add(one)
    BaseProcess.start(object())  # type: ignore[arg-type]  # what is started does not matter
    starts.remove(one)
    assert heard == ["a before", "start", "a after"]
    assert BaseProcess.start is found
