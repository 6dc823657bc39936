"""A new interpreter for work outside of the training process: it imports neither torch nor the user's program."""

from __future__ import annotations

import sys
from pathlib import Path

# -P keeps the user's working directory out of the child's imports; the path of this package comes last, so it shadows nothing.
_PROGRAM = "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
_LOCATION = str(Path(__file__).resolve().parents[1])


def command(module: str, *words: str) -> list[str]:
    """The command line that runs a module of this package.

    Args:
        module: its dotted name.
        words: its arguments.
    """
    return [sys.executable, "-P", "-c", _PROGRAM, _LOCATION, module, *words]
