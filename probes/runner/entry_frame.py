"""The frame that entered a run, and whether it still executes; that of a failed notebook cell does not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType

EntryFrame = tuple[int, CodeType]
"""The identity of a frame; the frame itself would keep its variables alive."""


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
