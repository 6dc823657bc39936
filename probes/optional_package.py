"""Import packages that are not among the dependencies, at the moment when a feature needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from probes.errors import MissingExtra


def import_optional(package: str, extra: str, purpose: str) -> Any:
    """Import an optional package.

    Args:
        package: name of the package, such as `xarray`.
        extra: the extra of `torch-probes` that installs it.
        purpose: what needs the package; begins the message.

    Raises:
        MissingExtra: the package is not installed; the message has the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        distribution = "torch" if extra == "torch" else f'"torch-probes[{extra}]"'
        raise MissingExtra(f"{purpose} needs the package `{package}`; install it with: pip install {distribution}") from error
