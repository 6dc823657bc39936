"""The Python and the installed packages of this process, found without importing any of them, and which files belong to them."""

from __future__ import annotations

import os
import platform
import re
import site
import sys
import sysconfig
from functools import cache, lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

OWN = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_FIELD = re.compile(r"^(Name|Version):(.*)$", re.MULTILINE | re.IGNORECASE)


def python_version() -> str:
    """Implementation and version of Python."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def packages() -> dict[str, str]:
    """Installed distributions and their versions, without those that others vendor.

    setuptools puts its own on `sys.path` once something imports it, as torch's compiler does: whether they are listed
    would then depend on what a program has run before.
    """
    return dict(_packages(tuple(_described(place) for place in sys.path)))


@lru_cache(maxsize=1)
def _packages(_described: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    """The result of `packages`, computed again only if distributions have changed."""
    found = (distribution for distribution in distributions() if "_vendor" not in Path(str(distribution.locate_file(""))).parts)
    tables = [_head(distribution) for distribution in found]
    listed = (table for table in reversed(tables) if table.keys() >= {"name", "version"})  # Python imports the first of several
    return dict(sorted({table["name"]: table["version"] for table in listed}.items()))


def _head(distribution: Distribution) -> dict[str, str]:
    """Name and version of a distribution, in the spelling of its core metadata.

    They stand among the first lines; `Distribution.metadata` would parse a hundred whole descriptions, which takes 0.2 s.
    """
    try:
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    except UnicodeDecodeError as error:  # old packages have names of authors in other encodings
        text = error.object.decode(errors="replace")
    return {key.lower(): value.strip() for key, value in _FIELD.findall(text.partition("\n\n")[0])}


def _described(place: str) -> tuple[str, ...]:
    """A folder of `sys.path` and the descriptions of distributions in it, whose names have the version in them."""
    try:
        return _names(place, Path(place).stat().st_mtime_ns)
    except OSError:
        return (place,)


@lru_cache(64)
def _names(place: str, _time: int) -> tuple[str, ...]:
    """The same for a folder in which no name has changed since a time.

    Raises:
        OSError: it is not a folder.
    """
    names = [one.name for one in Path(place).iterdir()]
    return (place, *sorted(name for name in names if name.endswith((".dist-info", ".egg-info"))))


@lru_cache(1 << 16)
def is_installed(place: str) -> bool:
    """Whether a file belongs to Python, to an installed package or to this package, and not to the user's code."""
    return place.startswith(_installed()) or f"{os.sep}site-packages{os.sep}" in place or f"{os.sep}dist-packages{os.sep}" in place


@cache
def _installed() -> tuple[str, ...]:
    """The directories of the standard library, of installed packages, and of this package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [*map(sysconfig.get_path, names), *site.getsitepackages(), site.getusersitepackages()]
    return (*sorted({f"{place}{os.sep}" for path in paths if path for place in (path, Path(path).resolve())}), OWN)
