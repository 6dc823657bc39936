"""PyTorch hooks under version control."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probes.errors import ProbesError
    from probes.plan.resolve import resolve
    from probes.reader.run import open  # noqa: A004  # it is called probes.open
    from probes.reader.runs import open_all
    from probes.report.printed import diff, verify
    from probes.runner.attach import attach
    from probes.runner.look.look import look
    from probes.spec import Spec
    from probes.spec import load_spec as load

__version__ = "0.1.0"

# Imported on first use, so that importing the package imports neither torch nor numpy nor h5py.
_PUBLIC = {
    "attach": "probes.runner.attach:attach",
    "diff": "probes.report.printed:diff",
    "load": "probes.spec:load_spec",
    "look": "probes.runner.look.look:look",
    "open": "probes.reader.run:open",
    "open_all": "probes.reader.runs:open_all",
    "resolve": "probes.plan.resolve:resolve",
    "verify": "probes.report.printed:verify",
    "ProbesError": "probes.errors:ProbesError",
    "Spec": "probes.spec:Spec",
}

__all__ = ["ProbesError", "Spec", "__version__", "attach", "diff", "load", "look", "open", "open_all", "resolve", "verify"]


def __getattr__(name: str) -> object:
    """A public name, imported from its module."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    found: object = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
