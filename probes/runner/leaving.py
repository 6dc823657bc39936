"""Whether a loop over a generator was left normally, or by an exception."""

from __future__ import annotations

import gc
import inspect
import opcode
import sys
from types import FrameType, TracebackType

from probes.hooks.capture.tracing import runs_eagerly

RAISES = ("RAISE_VARARGS", "RERAISE")
"""Instructions that end by an exception and by nothing else; one that is raised again gets no further traceback."""

RELEASES = ("POP_TOP", "POP_ITER", "POP_EXCEPT", "END_FOR", "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "RETURN_")
"""Instructions that release a loop's iterator and never raise: `break` and `return` pop it, an assignment replaces the variable."""

YIELDS = ("YIELD_VALUE", "YIELD_FROM", "RESUME", "SEND")
"""Instructions at which a generator waits, and at which it gets the GeneratorExit of its closing."""


@runs_eagerly
def handled() -> int:
    """The exception that is being handled, by its id: to refer to it would keep the frames of its traceback."""
    return id(sys.exception())


@runs_eagerly
def by_exception(closing: GeneratorExit, frame: FrameType | None, before: int) -> bool:
    """Whether an exception is passing through a loop whose generator is being closed.

    A generator that is closed sees GeneratorExit, whatever closed it, and an exception that is not handled yet is in no variable of
    Python. But it has put a traceback on the loop's frame, at the instruction that the frame is still at.

    Args:
        closing: what the generator sees.
        frame: the frame that closes the generator, the caller of its handler; None after the program has ended.
        before: `handled()` when the generator gave its last value.
    """
    around = closing.__context__
    while isinstance(around, GeneratorExit):
        around = around.__context__
    if around is not None and id(around) != before:  # as in the `finally` that closes the generator
        return True
    while frame is not None and _waits(frame):  # such as tqdm's, which is closed with the loop around it
        frame = frame.f_back
    if frame is None or frame.f_lasti < 0:
        return False
    name = _instruction(frame)
    if name.startswith(RAISES):
        return True
    if name.startswith(RELEASES):
        return False
    return any(isinstance(one, TracebackType) and one.tb_lasti == frame.f_lasti for one in gc.get_referrers(frame))


def _waits(frame: FrameType) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and _instruction(frame).startswith(YIELDS)


def _instruction(frame: FrameType) -> str:
    return opcode.opname[frame.f_code.co_code[frame.f_lasti]]
