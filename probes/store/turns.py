"""Who may touch a journal: one at a time, without a lock where captures of a few KiB are copied."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from time import sleep
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Turns:
    """Taking turns.

    A lock costs as much as all of a small capture's bookkeeping, so such a capture only says who it is: it looks whether
    `held` and `taker` are 0 and stores its thread's number in `taker`, with no call in between, where neither another thread
    nor a signal can come in. Whoever finds one of them set goes the way of everybody else, which is `alone`.

    Attributes:
        taker: the thread that copies a small capture; 0 for none.
        held: how many have the journal to themselves, one within the other; 0 for none.
        lock: held by them. It is re-entrant: a signal handler that closes the run while a capture is being taken must not
            wait for itself.
    """

    __slots__ = ("held", "lock", "taker")

    def __init__(self) -> None:
        self.taker = 0
        self.held = 0 if getattr(sys, "_is_gil_enabled", bool)() or sys.version_info < (3, 13) else 1  # without a GIL always by the lock
        self.lock = threading.RLock()


class Shared(Protocol):
    """What several threads use."""

    turns: Turns


S = TypeVar("S", bound=Shared)


def alone(work: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let a method run while no other thread is in one, and no small capture is half copied."""

    @wraps(work)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        turns = self.turns
        with turns.lock:
            turns.held += 1
            try:
                me = get_ident()
                while turns.taker not in (0, me):
                    sleep(0)
                return work(self, *args, **kwargs)
            finally:
                turns.held -= 1

    return run
