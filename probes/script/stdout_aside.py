"""Keeping what a script prints apart from what a command prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what the body prints to stderr; a stream that the body itself puts into `sys.stdout` stays there."""
    before, during = sys.stdout, sys.stderr
    sys.stdout = during
    try:
        yield
    finally:
        if sys.stdout is during:
            sys.stdout = before
