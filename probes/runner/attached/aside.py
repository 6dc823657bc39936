"""Calls of a model that do not concern a run which has hooks on it, such as those of `probes.look`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from probes.hooks.capture.run_state import RunState
from probes.runner.attached.schedule import Schedule


@contextmanager
def calls_aside(state: RunState) -> Iterator[None]:
    """Exclude what this thread calls in the body from a run, also within an outermost call of it."""
    thread = get_ident()
    around = state.calls.pop(thread, None)
    drawn = dict(around.drawn) if around is not None else {}
    state.aside.add(thread)
    try:
        yield
    finally:
        state.aside.discard(thread)
        if around is not None:
            around.drawn = drawn
            state.calls[thread] = around


@contextmanager
def backward_aside(state: RunState, schedule: Schedule) -> Iterator[None]:
    """Exclude the gradients of a backward in the body from a run: hooks on parameters do not know whose backward runs."""
    due, is_open = schedule.opened, state.open
    state.open = False
    schedule.close()
    try:
        yield
    finally:
        schedule.open(due)
        state.open = is_open
