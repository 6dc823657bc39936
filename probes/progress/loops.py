"""Progress of long work: loops report their items, and a caller may listen."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Listener(Protocol):
    """A listener to loops. Loops may be nested: the innermost began last."""

    def begin(self, noun: str, total: int) -> None:
        """A loop over `total` things begins."""

    def at(self, index: int) -> None:
        """The innermost loop is at its thing `index`, from 1."""

    def end(self) -> None:
        """The innermost loop is over."""


_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def reported_to(listener: Listener) -> Iterator[None]:
    """Pass the reports of all loops in the body, on this thread, to a listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def with_progress(items: Collection[T], noun: str) -> Iterator[T]:
    """Iterate over items, and report each to the listener.

    Args:
        items: what a loop goes over.
        noun: what an item is, such as `file`.
    """
    listener = _LISTENER.get()
    if listener is None:
        yield from items
        return
    listener.begin(noun, len(items))
    try:
        for index, item in enumerate(items, 1):
            listener.at(index)
            yield item
    finally:
        listener.end()
