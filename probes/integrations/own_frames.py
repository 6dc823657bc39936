"""Errors of this package without the frames that are inside the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from probes.errors import ProbesError

P = ParamSpec("P")
R = TypeVar("R")


def without_own_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Raise errors of this package as one error, whose traceback ends where the function was called.

    A trainer adds a dozen frames of its own above a callback; what the message says is then the last thing that is printed.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ProbesError as error:
            raise error.with_traceback(None) from None

    return called
