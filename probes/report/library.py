"""The plotting library in the page: plotly.js from the package `plotly`."""

from __future__ import annotations

from importlib.resources import files

from probes.optional_package import import_optional


def plotly_js() -> str:
    """The source of plotly.js.

    Raises:
        MissingExtra: the package is not installed; the message has the command that installs it.
    """
    import_optional("plotly", "report", "a report")
    return files("plotly").joinpath("package_data", "plotly.min.js").read_text("utf-8")
