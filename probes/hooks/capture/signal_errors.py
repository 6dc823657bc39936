"""Telling an exception of the program's signal handler from one that a hook has raised itself."""

from __future__ import annotations

import signal
from types import CodeType


def from_signal_handler(error: BaseException) -> bool:
    """Whether an exception was raised by a handler of the program's, such as a time limit, that a signal called within our code.

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
    """The code of a handler: a function, a method, a partial of one, or an object that can be called."""
    handler = getattr(handler, "func", handler)
    handler = getattr(handler, "__func__", handler)
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
