"""Import packages that are not among the dependencies, when a feature needs them."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from probes.errors import MissingExtra

OLDEST_TORCH = (2, 6)
OLDEST_COMPILER = (2, 12)  # with torch 2.6 to 2.11, torch.compile drops hooks, or raises during training


def import_optional(package: str, extra: str, purpose: str) -> Any:
    """Import an optional package.

    Args:
        package: name of the package, such as `xarray`.
        extra: the extra of `torch-probes` that installs it.
        purpose: what needs the package; begins the message.

    Raises:
        MissingExtra: the package is not installed, and the message has the command that installs it; or its import fails, and the
            message has the reason.
    """
    try:
        return import_module(package)
    except (Exception, SystemExit) as error:  # the code of another package may raise anything on import
        top = package.partition(".")[0]
        if not _is_installed(top):
            raise MissingExtra(_missing(package, extra, purpose)) from error
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise MissingExtra(f"{purpose} needs the package `{package}`; `{top}` is installed, but its import fails: {reason}") from error


def require_package(package: str, extra: str, purpose: str) -> None:
    """Refuse a feature whose package is missing, without importing the package.

    Args:
        package: name of the package.
        extra: the extra of `torch-probes` that installs it.
        purpose: what needs the package; begins the message.

    Raises:
        MissingExtra: the package is not installed; the message has the command that installs it.
    """
    if not _is_installed(package):
        raise MissingExtra(_missing(package, extra, purpose))


def require_torch(purpose: str) -> None:
    """Refuse a feature that needs torch, if torch is missing or too old; does not import torch.

    Args:
        purpose: what needs torch; begins the message.

    Raises:
        MissingExtra: torch is not installed, or is older than `OLDEST_TORCH`; the message has the command that installs it.
    """
    if not _is_installed("torch"):
        raise MissingExtra(f"{purpose} needs the package `torch`, which is not installed; {_install('torch')}")
    found = _torch_version()
    if is_older(found, OLDEST_TORCH):
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise MissingExtra(f"{purpose} needs torch {oldest} or later, and torch {found} is installed; {_install('torch')}")


def is_older(found: str, oldest: tuple[int, int]) -> bool:
    """Whether a version is before another; a version without numbers, such as of a source tree, is not."""
    return re.match(r"\d+\.\d+", found) is not None and tuple(map(int, found.split(".")[:2])) < oldest


def _missing(package: str, extra: str, purpose: str) -> str:
    return f"{purpose} needs the package `{package}`; {_install(extra)}"


def _install(extra: str) -> str:
    return f'install it with: pip install "torch-probes[{extra}]"'


def _is_installed(package: str) -> bool:
    """Whether an import would find a package; a folder with its name that is not a Python package does not count."""
    try:
        found = find_spec(package)
    except ImportError:
        return False
    except ValueError:  # imported already, by a loader that sets no `__spec__`
        return True
    return found is not None and found.origin is not None


def _torch_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # a fifth of the start-up time of every verb

    try:
        return version("torch")
    except PackageNotFoundError:  # torch runs from its source tree
        return ""
