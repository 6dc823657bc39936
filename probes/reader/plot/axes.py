"""Axes of matplotlib, and common parts of all pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.optional_package import import_optional

MOST_COLUMNS = 2000  # limit of cells of a heat map: more than a screen has
DECADES = 1000  # ratio of the largest to the smallest positive number from which colors are logarithmic
GAP = "0.8"  # gray of cells without a finite number


def axes_or_new(axes: Any) -> Any:
    """The given axes of matplotlib, or those of a new figure that a notebook shows.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    if axes is not None:
        return axes
    return import_optional("matplotlib.pyplot", "plot", "`plot`").figure(layout="constrained").subplots()


def heat_map(axes: Any, steps: NDArray[Any], rows: NDArray[Any], edges: NDArray[Any] | None = None) -> Any:
    """Draw numbers over steps as colors, with a bar that explains them.

    Args:
        axes: of matplotlib.
        steps: (columns,) the x of each column, ascending.
        rows: (rows, columns) the numbers; what is not finite is gray.
        edges: (rows + 1,) the y of the edges of the rows; by default they are at half numbers.

    Returns:
        The mesh.
    """
    stride = -(-len(steps) // MOST_COLUMNS)
    steps, rows = steps[::stride], rows[:, ::stride].astype(float)
    shown = np.ma.masked_invalid(rows)
    edges = np.arange(len(rows) + 1) - 0.5 if edges is None else edges
    mesh = axes.pcolormesh(_column_edges(steps.astype(float)), edges, shown, norm=_norm(shown), cmap="viridis", rasterized=True)
    axes.set_facecolor(GAP)
    axes.figure.colorbar(mesh, ax=axes)
    axes.set_xlabel("global_step" + (f" (every {stride}th is shown)" if stride > 1 else ""))
    return mesh


def _column_edges(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges half way between neighbors, so that a step is in the middle of its column."""
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middles = (steps[1:] + steps[:-1]) / 2
    return np.concatenate([[steps[0] - (middles[0] - steps[0])], middles, [steps[-1] + (steps[-1] - middles[-1])]])


def _norm(shown: np.ma.MaskedArray[Any, Any]) -> Any:
    """A logarithmic scale for positive numbers of very different sizes; None for a linear one."""
    found = shown.compressed()
    if len(found) and found.min() > 0 and found.max() > DECADES * found.min():
        return import_optional("matplotlib.colors", "plot", "`plot`").LogNorm(found.min(), found.max())
    return None
