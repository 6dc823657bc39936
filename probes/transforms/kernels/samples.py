"""Accumulations over samples: the largest values of each unit with their samples, and sums by label."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

VALUE, ID, STEP, ROW = range(4)


def largest(rows: Tensor, size: int) -> Tensor:
    """The largest values of each unit and their rows, NaN first; equal values in the order of their rows.

    Args:
        rows: (samples, *units), any real dtype and device.
        size: how many.

    Returns:
        (4, size, *units) float64: value, id (NaN for now), step (for now the number of samples) and row; what is missing has value -inf
        and row -1.
    """
    ordered = rows.double().sort(dim=0, descending=True, stable=True)
    found = rows.new_full((4, size, *rows.shape[1:]), -1.0, dtype=torch.float64)
    kept = min(size, len(rows))
    found[VALUE] = -torch.inf
    found[ID] = torch.nan
    found[VALUE, :kept], found[ROW, :kept] = ordered.values[:kept], ordered.indices[:kept].double()
    found[STEP] = len(rows)
    return found


def rows_of_largest(found: Tensor) -> int:
    """The number of samples that `largest` had."""
    return int(found[STEP].reshape(-1)[0]) if found[STEP].numel() else 0


def with_samples(found: Tensor, step: int, first_row: int, ids: Sequence[int | str]) -> Tensor:
    """The result of `largest` with the step, the rows counted within the step, and the ids of the samples if they are integers."""
    rows = found[ROW]
    there = rows >= 0
    result = found.clone()
    result[STEP] = torch.where(there, float(step), -1.0)
    result[ROW] = torch.where(there, rows + first_row, rows)
    known = [float(one) if isinstance(one, int) else torch.nan for one in ids]
    places = result[ROW].clamp(min=0).long()
    if known and int(places.max()) < len(known):
        result[ID] = torch.where(there, torch.tensor(known, dtype=torch.float64)[places], torch.nan)
    return result


def merge_largest(earlier: Tensor, later: Tensor) -> Tensor:
    """The largest of both; equal values in the order of their samples."""
    both = torch.cat([earlier, later], dim=1)
    real_first = (both[ROW] < 0).byte().sort(dim=0, stable=True).indices  # what is missing has the value -inf, and a sample may have it
    by_value = both[VALUE].gather(0, real_first).sort(dim=0, descending=True, stable=True).indices
    order = real_first.gather(0, by_value)[: earlier.shape[1]]
    return both.gather(1, order.expand(4, *order.shape))


def sums_by_label(rows: Tensor, labels: Tensor, count: int) -> Tensor:
    """Number of finite and of other elements, and sum of the finite ones, of each label and unit.

    Args:
        rows: (samples, *units), any real dtype.
        labels: integers, as many as samples, on any axes; a sample whose label is not in 0 ... count - 1 is left out.
        count: number of labels.

    Returns:
        (3, count, *units) float64.

    Raises:
        ValueError: the labels are not integers, or not one for each sample.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.numel() != rows.shape[0]:
        kind = f"{str(labels.dtype).removeprefix('torch.')}{list(labels.shape)}"
        raise ValueError(f"sums by label need one integer for each of the {rows.shape[0]} samples, and the labels are {kind}")
    labels = labels.reshape(-1).long()  # torch does not compare unsigned integers of more than 8 bits
    wanted = ((labels >= 0) & (labels < count)).to(rows.device)
    values, places = rows.double()[wanted], labels.to(rows.device)[wanted]
    finite = values.isfinite()
    found = rows.new_zeros((3, count, *rows.shape[1:]), dtype=torch.float64)
    for index, part in enumerate((finite.double(), (~finite).double(), values.where(finite, 0.0))):
        found[index].index_add_(0, places, part)
    return found
