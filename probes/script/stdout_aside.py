"""Separate the output of a script from that of a command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect the output of the body to stderr; a stream that the body itself assigns to `sys.stdout` stays."""
    before, during = sys.stdout, sys.stderr
    sys.stdout = during
    try:
        yield
    finally:
        if sys.stdout is during:
            sys.stdout = before
