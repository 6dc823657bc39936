"""Plug-ins: kinds of other distributions, found without an import, and imported only if they are allowed by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from probes.component import Component, Edit, Sink, Transform
from probes.errors import UsageError, nearest

GROUPS = {"transform": "probes.transforms", "edit": "probes.edits", "sink": "probes.sinks"}
CLASSES: dict[str, type[Component]] = {"transform": Transform, "edit": Edit, "sink": Sink}
_granted: ContextVar[frozenset[str]] = ContextVar("granted", default=frozenset())


class PluginError(UsageError):
    """A plug-in does not contain the class that its entry point declares."""


@dataclass(frozen=True)
class Plugin:
    """A kind that an installed distribution declares; its module need not be imported.

    Attributes:
        family: transform, edit or sink.
        kind: its name in a spec; it contains a dot.
        distribution: name of the distribution.
        version: version of the distribution.
        entry: where its class is.
    """

    family: str
    kind: str
    distribution: str
    version: str
    entry: EntryPoint


def installed() -> tuple[Plugin, ...]:
    """The kinds that installed distributions declare, sorted by name; nothing is imported."""
    found = [_plugin(family, entry) for family, group in GROUPS.items() for entry in entry_points(group=group)]
    return tuple(sorted(found, key=lambda plugin: (plugin.kind, plugin.family, plugin.distribution)))


def _plugin(family: str, entry: EntryPoint) -> Plugin:
    known = entry.dist
    return Plugin(family, entry.name, known.name if known else "unknown", known.version if known else "unknown", entry)


@contextmanager
def granted(names: Iterable[str]) -> Iterator[None]:
    """Allow kinds to be imported while the block runs.

    Raises:
        UsageError: one of them is not installed.
    """
    wanted = frozenset(names)
    known = {plugin.kind for plugin in installed()} if wanted else set()
    for name in sorted(wanted - known):
        hint = nearest(name, known) or f"installed: {', '.join(sorted(known)) or 'none'}"
        raise UsageError(f"plug-in `{name}` is allowed, but not installed; {hint}")
    token = _granted.set(wanted | _granted.get())
    try:
        yield
    finally:
        _granted.reset(token)


def is_granted(kind: str) -> bool:
    """Whether a kind may be imported."""
    return kind in _granted.get()


def find(family: str, kind: str) -> Plugin | None:
    """The plug-in of a kind; None if none is installed.

    Raises:
        PluginError: several distributions declare it.
    """
    if "." not in kind:
        return None
    found = [plugin for plugin in installed() if (plugin.family, plugin.kind) == (family, kind)]
    if len(found) > 1:
        owners = " and ".join(f"`{plugin.distribution}`" for plugin in found)
        raise PluginError(f"several distributions declare {family} `{kind}`: {owners}; uninstall all but one")
    return found[0] if found else None


def load(plugin: Plugin) -> type[Component]:
    """Import the class of an allowed plug-in.

    Raises:
        PluginError: it cannot be imported, or is not what its entry point declares.
    """
    if not is_granted(plugin.kind):
        raise AssertionError(f"BUG: `{plugin.kind}` is imported without a grant")
    origin = f"plug-in `{plugin.kind}` of `{plugin.distribution}`"
    try:
        found = plugin.entry.load()
    except (Exception, SystemExit) as error:  # the module of a plug-in may raise anything on import
        raise PluginError(f"{origin} cannot be imported from `{plugin.entry.value}`: {type(error).__name__}: {error}") from error
    wanted = CLASSES[plugin.family]
    if not (isinstance(found, type) and issubclass(found, wanted)):
        raise PluginError(
            f"{origin} is not a {plugin.family}: `{plugin.entry.value}` is not a subclass of `probes.component.{wanted.__name__}`"
        )
    if found.model_fields["kind"].default != plugin.kind:
        raise PluginError(f"{origin} has `kind` `{found.model_fields['kind'].default}`; it must be the name of its entry point")
    return found


def source(plugin: Plugin) -> tuple[str, str]:
    """File name and SHA-256 of the module of an imported plug-in."""
    file = getattr(sys.modules[plugin.entry.module], "__file__", None)
    if file is None:
        return plugin.entry.module, sha256(b"").hexdigest()
    return file, sha256(Path(file).read_bytes()).hexdigest()
