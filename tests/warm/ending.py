"""The end of a program that began in a fork: what an interpreter does, except that it takes no imported library apart.

To take apart what the server has imported would copy most of its memory, ten times as long as most programs run. A program that ends
by an exception or a signal ends as any does. `atexit` calls first what was registered last, so this module is imported before others.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom, BufferedWriter, TextIOWrapper

_known: set[str] = set()
_codes: list[int] = []


@contextmanager
def short() -> Iterator[None]:
    """Run a program in this block: the modules that it adds are dropped at its end, with all that they hold."""
    _known.update(sys.modules)
    _known.remove("__main__")
    try:
        yield
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _codes.append((end.code or 0) & 0xFF)
        raise
    _codes.append(0)


@atexit.register
def _end() -> None:
    if _codes:
        added = {name for name in [*sys.modules] if name not in _known}
        for name in added:
            del sys.modules[name]
        atexit._clear()
        for each in gc.get_objects():  # before a collection closes a file under its buffer
            if type(each) in (BufferedWriter, BufferedRandom, TextIOWrapper):
                with suppress(OSError, ValueError):
                    each.flush()
        gc.collect()
        for space in gc.get_objects():  # where something still holds a name of a module
            if type(space) is dict and "__builtins__" in space and space.get("__name__") in added:
                space.clear()
        gc.collect()
        with suppress(AttributeError, OSError, ValueError):  # closed or full: an interpreter has an exit code for this
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_codes[0])
