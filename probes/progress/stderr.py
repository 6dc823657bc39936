"""Lines on stderr that cause no error if a program has closed it."""

from __future__ import annotations

import sys
from contextlib import suppress


def tell(text: str) -> None:
    """Print lines on stderr; if the program has closed or removed it, they are lost without an error."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)
