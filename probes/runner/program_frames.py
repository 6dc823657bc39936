"""Frames of the program: whether the code that entered a run still executes, how a loop was left, whether a step is within another."""

from __future__ import annotations

import gc
import inspect
import opcode
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType

from torch.optim import Optimizer

from probes.hooks.capture.tracing import runs_eagerly

EntryFrame = tuple[int, CodeType]
"""The identity of a frame; the frame itself would keep its variables alive."""

RAISES = ("RAISE_VARARGS", "RERAISE")
"""Instructions that end by an exception and by nothing else; one that is raised again gets no further traceback."""

RELEASES = ("POP_TOP", "POP_ITER", "POP_EXCEPT", "END_FOR", "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "RETURN_")
"""Instructions that release a loop's iterator and never raise: `break` and `return` pop it, an assignment replaces the variable."""

YIELDS = ("YIELD_VALUE", "YIELD_FROM", "RESUME", "SEND")
"""Instructions at which a generator waits, and at which it gets the GeneratorExit of its closing."""


# The frame that entered a run; that of a failed notebook cell does not execute any more


def entered_from(frame: FrameType, file: str) -> EntryFrame | None:
    """The innermost frame around `frame` whose code is not in `file`."""
    return next((_identity(one) for one in _outwards(frame) if one.f_code.co_filename != file), None)


def still_executes(entry: EntryFrame | None) -> bool:
    """Whether a thread of the process executes the frame, or something that it has called."""
    return any(_identity(one) == entry for top in sys._current_frames().values() for one in _outwards(top))


def _identity(frame: FrameType) -> EntryFrame:
    return id(frame), frame.f_code


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


# Loops over generators


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


# Steps of optimizers


def is_part_of_a_step(optimizer: Optimizer, frame: FrameType) -> bool:
    """Whether a step of an optimizer runs within another one that changes its parameters.

    PyTorch calls its hooks in each class whose `step` it has wrapped: a derived class that calls `super().step()` calls them twice for one
    step, and so does an optimizer that steps others.

    Args:
        optimizer: the optimizer that steps.
        frame: the frame of PyTorch that calls the hooks; those around it of the same code are of other steps.
    """
    around = frame.f_back
    while around is not None:
        if around.f_code is frame.f_code:
            other = around.f_locals.get("self")
            if other is optimizer or (isinstance(other, Optimizer) and not _held(other).isdisjoint(_held(optimizer))):
                return True
        around = around.f_back
    return False


def _held(optimizer: Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
