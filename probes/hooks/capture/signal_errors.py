"""Distinguish an exception of the program's signal handler from one that a hook has raised."""

from __future__ import annotations

import signal
from types import CodeType


def from_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler of the program, such as a time limit, raised an exception inside this package.

    Python calls handlers between any two instructions of the main thread, so the exception comes out of whatever runs there. Its
    traceback has the handler's frame.
    """
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    """The code object of a handler: a function, a method, a partial of one, or an object that can be called."""
    handler = getattr(handler, "func", handler)
    handler = getattr(handler, "__func__", handler)
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
