"""Whether a loop over a generator was left by `break` or `return`, or by an exception."""

from __future__ import annotations

import inspect
import opcode
from types import FrameType

TAKEN_OFF = ("POP_", "END_FOR", "STORE_", "DELETE_", "RETURN_")
"""Instructions that release a loop's iterator: `break` and `return` pop it from the stack, an assignment replaces the variable."""


def by_exception(frame: FrameType | None) -> bool:
    """Whether an exception is passing through a loop whose generator is being closed.

    A generator that is closed sees GeneratorExit, whatever closed it. The instruction that the loop's own frame is at tells: after an
    exception it is the one that raised.

    Args:
        frame: the frame that closes the generator, `sys._getframe(1)` of its handler.
    """
    while frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR:  # such as tqdm's, which is closed with the loop around it
        frame = frame.f_back
    if frame is None or frame.f_lasti < 0:
        return False
    return not opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith(TAKEN_OFF)
