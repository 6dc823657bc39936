"""The place in the user's code where a module is called."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from torch.nn import Module

from probes.run_directory.create import where_started

INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def call_place() -> str:
    """`file:line` of the call: in the user's code if such a frame is on the stack, else nearest to the call."""
    frames = [frame for frame in _frames() if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in ("torch", "probes")]
    if not frames:
        return "an unknown place"
    frame = next((frame for frame in frames if not frame.f_code.co_filename.startswith(INSTALLED)), frames[0])
    path, here = Path(frame.f_code.co_filename), where_started()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{frame.f_lineno}"


def is_being_built(modules: list[Module]) -> bool:
    """Whether one of the modules is still in its `__init__`, which may call its parts to infer shapes."""
    return any(
        frame.f_code.co_name == "__init__" and any(frame.f_locals.get("self") is module for module in modules) for frame in _frames()
    )


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
