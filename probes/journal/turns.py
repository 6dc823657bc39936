"""Who may touch a journal: one at a time, without a lock where captures of a few KiB are copied."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Turns:
    """Taking turns.

    A lock costs as much as all of a small capture's bookkeeping. Such a capture looks whether `held` is 0 and its place still
    free, copies its bytes and takes the place without a call, and packs its entry with one call of C. Neither another thread
    nor a signal comes in before that call has returned, nor the garbage collector, which before Python 3.12 runs where an
    object is made that it keeps track of: the slice is made before. Where `held` is set, or the place is gone, a capture goes
    the way of everybody else, which is `alone`.

    Attributes:
        held: how many have the journal to themselves, one within the other; 0 for none.
        lock: held by them. It is re-entrant: a signal handler that closes the run while a capture is being taken must not
            wait for itself.
    """

    __slots__ = ("held", "lock")

    def __init__(self) -> None:
        self.held = 0 if getattr(sys, "_is_gil_enabled", bool)() or sys.version_info < (3, 13) else 1  # without a GIL always by the lock
        self.lock = threading.RLock()


class Shared(Protocol):
    """What several threads use."""

    turns: Turns


S = TypeVar("S", bound=Shared)


def alone(work: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let a method run while no other thread is in one, and no small capture comes in."""

    @wraps(work)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        turns = self.turns
        with turns.lock:
            turns.held += 1
            try:
                return work(self, *args, **kwargs)
            finally:
                turns.held -= 1

    return run
