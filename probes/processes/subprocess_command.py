"""A new interpreter for work outside of the training process: it imports neither torch nor the user's program."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

# -P keeps the user's working directory out of the child's imports; the path of this package comes last, so it shadows nothing.
_PROGRAM = "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
_LOCATION = str(Path(__file__).resolve().parents[2])
_RECORD = b"\x1e"  # before each answer, as in a JSON text sequence (RFC 7464); what a `sitecustomize` prints comes without it


def command(module: str, *words: str) -> list[str]:
    """The command line that runs a module of this package.

    Args:
        module: its dotted name.
        words: its arguments.

    Raises:
        FileNotFoundError: as `interpreter`.
    """
    return [interpreter(), "-P", "-c", _PROGRAM, _LOCATION, module, *words]


def interpreter() -> str:
    """The Python interpreter of this process.

    Raises:
        FileNotFoundError: there is none: the executable of a frozen program, or of one that embeds Python, would start that program again.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = [] if getattr(sys, "frozen", False) else [Path(sys.executable or "."), Path(sys.exec_prefix, "bin", version)]
    for place in places:
        if re.search("py|thon", place.name.lower()) and os.access(place, os.X_OK):
            return str(place)
    raise FileNotFoundError(errno.ENOENT, "this program has no Python interpreter")


def answer_line(message: Any) -> bytes:
    """The line in which a child sends a message on its stdout.

    Args:
        message: plain JSON values.
    """
    return _RECORD + json.dumps(message).encode("ascii") + b"\n"


def answered(line: bytes) -> Any:
    """The message in a line of the output of a child; None if it holds none."""
    _, mark, text = line.rpartition(_RECORD)
    return json.loads(text) if mark else None


def last_answer(output: bytes) -> Any:
    """The last message in the output of a child that has ended; None if it holds none."""
    found = [one for one in map(answered, output.splitlines()) if one is not None]
    return found[-1] if found else None
