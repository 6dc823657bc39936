"""Count, mean, variance, covariance and extremes of columns, which merge, in float64.

The statistics of one value are taken in two passes over it. Those of two values are merged by the counts, as `moments` merges runs:
with n = a + b and d = mean_b - mean_a,

    mean = mean_a + d * b / n        variance = (a * variance_a + b * variance_b) / n + d * d * a * b / n**2

On the CPU the work is numpy's, which adds in one order whatever the number of threads; `einsum` without optimization calls no BLAS.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from probes.transforms.kernels.moments import Doubles, block_sum
from probes.transforms.kernels.summation import device_exponent, device_scaled, device_sum


def moments(rows: Tensor) -> Tensor:
    """Count, nonfinite, mean, variance, min and max of each column.

    Args:
        rows: (n, ...), any real dtype and device; not changed.

    Returns:
        (6, ...) float64 on the same device.
    """
    flat = rows.double().reshape(rows.shape[0], prod(rows.shape[1:]))
    finite = flat.isfinite()
    count = finite.sum(0).double()
    some = count > 0
    whole = flat.device.type == "cpu" and bool(finite.all())
    clean = flat if whole else flat.where(finite, 0.0)
    exponent = device_exponent(clean) if rows.dtype is torch.float64 else None  # squares of all other dtypes are in range
    scaled = clean if exponent is None else device_scaled(clean, -exponent)
    mean, variance = _centred(scaled, None if whole else finite, count)
    low, high = _extremes(flat, None if whole else finite)
    numbers = (
        count,
        flat.shape[0] - count,
        device_scaled(mean, exponent),
        device_scaled(device_scaled(variance, exponent), exponent),
        low.where(some, torch.nan),
        high.where(some, torch.nan),
    )
    return torch.stack(numbers).reshape(len(numbers), *rows.shape[1:])


def _centred(values: Tensor, finite: Tensor | None, count: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance, from distances to a number near the mean; see `standard_deviation` for the second attempt.

    Args:
        values: (n, columns) float64.
        finite: which of them count; None for all.
        count: (columns,) how many.
    """
    near = _sum(values) / count
    for attempt in range(2):
        apart = values - near if finite is None else (values - near).where(finite, 0.0)
        off, squares = _sum(apart) / count, _sum(apart * apart) / count
        if attempt or (values.device.type == "cpu" and bool((off * off * 2 <= squares).all())):
            break
        near = near + off
    return near + off, (squares - off * off).clamp(min=0)


def _extremes(values: Tensor, finite: Tensor | None) -> tuple[Tensor, Tensor]:
    if finite is None and len(values):
        return values.amin(0), values.amax(0)
    finite = values.isfinite() if finite is None else finite
    edge = values.new_full((1, values.shape[1]), torch.inf)
    low = torch.cat((values.where(finite, torch.inf), edge)).amin(0)
    return low, torch.cat((values.where(finite, -torch.inf), -edge)).amax(0)


def _sum(values: Tensor) -> Tensor:
    """The sums of the columns; on the CPU by numpy, in a fixed order."""
    return torch.from_numpy(block_sum(values.numpy())) if values.device.type == "cpu" else device_sum(values)


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
    exponent = device_exponent(clean) if rows.dtype is torch.float64 else clean.new_zeros(clean.shape[1])
    scaled = device_scaled(clean, -exponent)
    mean = _sum(scaled) / count
    off = _sum((scaled - mean).where(whole.unsqueeze(1), 0.0)) / count
    mean = mean + off  # a second correction, as in `standard_deviation`: the remaining error is of second order
    apart = (scaled - mean).where(whole.unsqueeze(1), 0.0)
    found = _products(apart, on_host) / count
    counts = torch.stack((count, values.shape[0] - count)).unsqueeze(1).expand(2, values.shape[1])
    covariances = device_scaled(device_scaled(found, exponent), exponent.unsqueeze(1))
    return torch.cat((counts, device_scaled(mean, exponent).unsqueeze(0), covariances))


def _products(apart: Tensor, on_host: bool) -> Tensor:
    """The sums of products of the columns; on the CPU in a fixed order."""
    if not on_host:
        return apart.T @ apart
    values: Doubles = apart.numpy()
    return torch.from_numpy(np.einsum("ni,nj->ij", values, values, optimize=False))


def merge(earlier: Tensor, later: Tensor, *, covariance: bool) -> Tensor:
    """Merge the statistics of two sets of values.

    Args:
        earlier: float64 on the host, of a shape that `moments` or `covariance` returns; not changed.
        later: the same of other values.
        covariance: whether they are those of `covariance`.

    Returns:
        A new tensor of the same shape.

    Raises:
        ValueError: the shapes differ.
    """
    if earlier.shape != later.shape:
        raise ValueError(f"the accumulated value changed its shape within the epoch, from {tuple(earlier.shape)} to {tuple(later.shape)}")
    a, b = earlier.numpy(), later.numpy()
    joined = _joined(a, b, spreads=(slice(3, None), slice(3, 4))[not covariance], outer=covariance)
    if not covariance:
        joined[4], joined[5] = np.fmin(a[4], b[4]), np.fmax(a[5], b[5])
    return torch.from_numpy(joined)


def _joined(a: Doubles, b: Doubles, *, spreads: slice, outer: bool) -> Doubles:
    """Counts, means and (co)variances of both sides; a side without values adds nothing."""
    count = a[0] + b[0]
    some = np.maximum(count, 1.0)
    apart = np.where((a[0] > 0) & (b[0] > 0), b[2] - a[2], 0.0)
    result = np.where(a[0] > 0, a, b)  # if both are empty: NaN, as in either
    both = (a[0] > 0) & (b[0] > 0)
    shift = apart[:, None] * apart[None, :] if outer else apart * apart
    spread = (a[0] * a[spreads] + b[0] * b[spreads]) / some + shift * (a[0] / some) * (b[0] / some)
    result[2] = np.where(both, a[2] + apart * (b[0] / some), result[2])
    result[spreads] = np.where(both, spread, result[spreads])
    result[0], result[1] = count, a[1] + b[1]
    return result
