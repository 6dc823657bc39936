"""The Python and the installed packages of this process, found without importing any of them."""

from __future__ import annotations

import platform
import sys
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path


def python_version() -> str:
    """Implementation and version of Python."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def packages() -> dict[str, str]:
    """Installed distributions and their versions, without those that others carry within themselves.

    setuptools puts its own on `sys.path` once something imports it, as torch's compiler does: whether they are listed
    would then depend on what a program has run before.
    """
    return dict(_packages(tuple(_described(place) for place in sys.path)))


@lru_cache(maxsize=1)
def _packages(_described: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    """What `packages` lists; parsing a hundred descriptions takes 0.1 s, so it is done again only where others are there."""
    found = (distribution for distribution in distributions() if "_vendor" not in Path(str(distribution.locate_file(""))).parts)
    tables = [distribution.metadata for distribution in found]  # each access parses the file anew
    return dict(sorted((table["Name"], table["Version"]) for table in tables if table["Name"] and table["Version"]))


def _described(place: str) -> tuple[str, ...]:
    """A folder of `sys.path` and the descriptions of distributions in it, whose names have the version in them."""
    try:
        names = [one.name for one in Path(place).iterdir()]
    except OSError:
        return (place,)
    return (place, *sorted(name for name in names if name.endswith((".dist-info", ".egg-info"))))
