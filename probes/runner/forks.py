"""Forked children, such as the workers of a DataLoader: they carry copies of the hooks, and must not write to the parent's files."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Inert(Protocol):
    """What a forked child makes harmless."""

    def go_inert(self) -> None:
        """Stop capturing in this process; the files belong to the parent."""


_FOLLOWED: WeakSet[Inert] = WeakSet()


def follow(run: Inert) -> None:
    """Make a run inert in every child that this process forks from now on."""
    _FOLLOWED.add(run)


def _forked() -> None:
    for run in tuple(_FOLLOWED):
        run.go_inert()


os.register_at_fork(after_in_child=_forked)
