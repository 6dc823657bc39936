"""The norms of the columns of a real or complex matrix, in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from probes.transforms.kernels.summation import root_of_squares, total


def l0(rows: Tensor) -> Tensor:
    """The number of elements that are not zero; NaN is not zero."""
    return (rows != 0).sum(0).double()


def l1(rows: Tensor) -> Tensor:
    """The sum of magnitudes."""
    return total(_magnitudes(rows), abs)


def l2(rows: Tensor) -> Tensor:
    """The root of the sum of squared magnitudes."""
    if rows.is_complex():
        parts = torch.view_as_real(rows.resolve_conj())
        rows = torch.cat((parts[..., 0], parts[..., 1]))
    return root_of_squares(rows)


def linf(rows: Tensor) -> Tensor:
    """The largest magnitude, 0 of no elements."""
    magnitudes = _magnitudes(rows).abs().double()
    return magnitudes.amax(0) if len(rows) else magnitudes.sum(0)


def _magnitudes(rows: Tensor) -> Tensor:
    """The elements, or the magnitudes of complex ones; `hypot` does not overflow inside."""
    if not rows.is_complex():
        return rows
    parts = torch.view_as_real(rows.resolve_conj()).double()
    return torch.hypot(parts[..., 0], parts[..., 1])


NORMS: dict[str, Callable[[Tensor], Tensor]] = {"l0": l0, "l1": l1, "l2": l2, "linf": linf}
