"""Count, mean, variance, covariance and extremes that merge, in float64.

The statistics of one value are taken in two passes over it. Those of two values are merged by the counts, the pairwise form of
Welford's update (B. P. Welford, Technometrics 4, 1962): T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing
the sample variance: analysis and recommendations", The American Statistician 37, 1983, equation 2.1. With n = a + b and
d = mean_b - mean_a:

    mean = mean_a + d * b / n        variance = (a * variance_a + b * variance_b) / n + d * d * a * b / n**2

On the CPU the work is numpy's, which adds in one order whatever the number of threads; `einsum` without optimization is no BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Doubles = np.ndarray[Any, np.dtype[np.float64]]


def moments(rows: Tensor) -> Tensor:
    """Count, nonfinite, mean, variance, min and max of each column.

    Args:
        rows: (n, ...), any real dtype and device; not changed.

    Returns:
        (6, ...) float64 on the same device.
    """
    if rows.device.type != "cpu":
        return _moments_on_device(rows.double())
    values: Doubles = rows.double().numpy()
    finite = np.isfinite(values)
    count = finite.sum(0, dtype=np.float64)
    clean = values if finite.all() else np.where(finite, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = clean.sum(0) / count
        apart = clean - mean if clean is values else np.where(finite, clean - mean, 0.0)
        variance = np.square(apart).sum(0) / count
        low = np.where(finite, values, np.inf).min(0, initial=np.inf)
        high = np.where(finite, values, -np.inf).max(0, initial=-np.inf)
    none = count == 0
    return torch.from_numpy(
        np.stack((count, len(values) - count, mean, variance, np.where(none, np.nan, low), np.where(none, np.nan, high)))
    )


def _moments_on_device(values: Tensor) -> Tensor:
    """The same in torch operations alone, without waiting for the device."""
    finite = values.isfinite()
    count = finite.sum(0).double()
    clean = values.where(finite, 0.0)
    mean = clean.sum(0) / count
    variance = (clean - mean).where(finite, 0.0).square().sum(0) / count
    edge = values.new_full((1, *values.shape[1:]), torch.inf)
    low = torch.cat((values.where(finite, torch.inf), edge)).amin(0)
    high = torch.cat((values.where(finite, -torch.inf), -edge)).amax(0)
    some = count > 0
    return torch.stack((count, values.shape[0] - count, mean, variance, low.where(some, torch.nan), high.where(some, torch.nan)))


def covariance(rows: Tensor) -> Tensor:
    """Count, nonfinite and mean of the columns, then their covariance; a row with an element that is not finite is left out.

    Args:
        rows: (n, features), any real dtype and device; not changed.

    Returns:
        (3 + features, features) float64 on the same device.
    """
    on_host = rows.device.type == "cpu"
    values = rows.double()
    whole = values.isfinite().all(1)
    clean = values.where(whole.unsqueeze(1), 0.0)
    count = whole.sum().double()
    apart = clean - (mean := _sum(clean, on_host) / count)
    apart = apart.where(whole.unsqueeze(1), 0.0)
    counts = torch.stack((count, values.shape[0] - count)).unsqueeze(1).expand(2, values.shape[1])
    return torch.cat((counts, mean.unsqueeze(0), _products(apart, on_host) / count))


def _sum(values: Tensor, on_host: bool) -> Tensor:
    """The sum of the rows, on the host in one order."""
    return torch.from_numpy(np.asarray(values.numpy().sum(0))) if on_host else values.sum(0)


def _products(apart: Tensor, on_host: bool) -> Tensor:
    """The sums of products of the columns, on the host in one order."""
    if not on_host:
        return apart.T @ apart
    values: Doubles = apart.numpy()
    return torch.from_numpy(np.einsum("ni,nj->ij", values, values, optimize=False))


def merge(earlier: Tensor, later: Tensor, *, covariance: bool) -> Tensor:
    """The statistics of two sets of values together.

    Args:
        earlier: float64 on the host, of a shape that `moments` or `covariance` returns; not changed.
        later: the same of other values.
        covariance: of which of the two.

    Returns:
        A new tensor of the same shape.

    Raises:
        ValueError: the shapes differ, so that these are no statistics of the same places.
    """
    if earlier.shape != later.shape:
        raise ValueError(f"what is accumulated changed its shape within the epoch, from {tuple(earlier.shape)} to {tuple(later.shape)}")
    a, b = earlier.numpy(), later.numpy()
    joined = _joined(a, b, spreads=(slice(3, None), slice(3, 4))[not covariance], outer=covariance)
    if not covariance:
        joined[4], joined[5] = np.fmin(a[4], b[4]), np.fmax(a[5], b[5])
    return torch.from_numpy(joined)


def _joined(a: Doubles, b: Doubles, *, spreads: slice, outer: bool) -> Doubles:
    """Counts, means and (co)variances of both; a side without values adds nothing."""
    count = a[0] + b[0]
    some = np.maximum(count, 1.0)
    apart = np.where((a[0] > 0) & (b[0] > 0), b[2] - a[2], 0.0)
    result = np.where(a[0] > 0, a, b)  # where both are empty: NaN, as in either
    both = (a[0] > 0) & (b[0] > 0)
    shift = apart[:, None] * apart[None, :] if outer else apart * apart
    spread = (a[0] * a[spreads] + b[0] * b[spreads]) / some + shift * (a[0] / some) * (b[0] / some)
    result[2] = np.where(both, a[2] + apart * (b[0] / some), result[2])
    result[spreads] = np.where(both, spread, result[spreads])
    result[0], result[1] = count, a[1] + b[1]
    return result
