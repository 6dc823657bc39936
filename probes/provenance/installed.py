"""Whether a file belongs to Python, to an installed package, or to this package."""

from __future__ import annotations

import os
import site
import sysconfig
from functools import cache, lru_cache
from pathlib import Path

OWN = f"{Path(__file__).resolve().parents[1]}{os.sep}"


@lru_cache(1 << 16)
def is_installed(place: str) -> bool:
    """Whether a file does not belong to the user's code."""
    return place.startswith(_installed()) or f"{os.sep}site-packages{os.sep}" in place or f"{os.sep}dist-packages{os.sep}" in place


@cache
def _installed() -> tuple[str, ...]:
    """The directories of the standard library, of installed packages, and of this package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [*map(sysconfig.get_path, names), *site.getsitepackages(), site.getusersitepackages()]
    return (*sorted({f"{place}{os.sep}" for path in paths if path for place in (path, Path(path).resolve())}), OWN)
