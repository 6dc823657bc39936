"""The loss scales of the gradients in a file, by their place in the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import values
from probes.capture_file.series_part import SeriesPart

PLACE = ("epoch", "rank", "step", "microstep")


def loss_scales(parts: Sequence[SeriesPart], clocks: NDArray[np.void]) -> NDArray[np.float64]:
    """The loss scale of each capture; 1 for gradients without a scale.

    Args:
        parts: the series of scales of one probe and phase.
        clocks: (captures,) of `CLOCKS`.
    """
    known: dict[tuple[int, ...], float] = {}
    for part in parts:
        known.update(zip(_places(part.clocks), values(part.elements(0, len(part.clocks)), part.dtype).tolist(), strict=True))
    return np.array([known.get(place, 1.0) for place in _places(clocks)]) if known else np.ones(len(clocks))


def divided(numbers: NDArray[Any], scales: NDArray[np.float64]) -> NDArray[Any]:
    """Divide gradients by their scale; float16 becomes float32, so that no small number is lost.

    Args:
        numbers: (captures, ...) of any float or complex dtype.
        scales: (captures,).
    """
    wide = numbers.astype(np.float32) if numbers.dtype == np.float16 else numbers
    by = scales.astype(wide.real.dtype).reshape(-1, *[1] * (numbers.ndim - 1))
    return np.asarray(wide / by)


def nonlinear(parts: Sequence[SeriesPart]) -> list[str]:
    """The transforms of the probe whose results do not scale with the gradient."""
    return sorted({kind for part in parts for kind in str(part.attrs.get("nonlinear", "")).split()})


def _places(clocks: NDArray[np.void]) -> list[tuple[int, ...]]:
    return list(zip(*(clocks[name].tolist() for name in PLACE), strict=True))
