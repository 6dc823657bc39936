"""Lines on stderr that end nothing where a program has closed it."""

from __future__ import annotations

import sys
from contextlib import suppress


def tell(text: str) -> None:
    """Print lines on stderr; where the program has closed or taken it away they are lost, which is no reason to end it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)
