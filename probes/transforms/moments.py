"""Count, mean, spread, extremes and special values of a tensor, in one reading of its memory."""

from __future__ import annotations

import torch
from torch import Tensor


class Moments:
    """Computes the ten numbers of `stats`."""

    def __call__(self, tensor: Tensor) -> Tensor:
        """See `probes.transforms.stats`."""
        return on_device(tensor)


def on_device(tensor: Tensor) -> Tensor:
    """The ten numbers in torch operations only, without waiting for the device.

    Args:
        tensor: any shape and real dtype on any device; not changed.

    Returns:
        (10,) float64 on the same device.
    """
    values = tensor.reshape(-1).double()
    finite = values.isfinite()
    count = finite.sum().double()
    clean = values.where(finite, 0.0)
    mean = clean.sum() / count
    spread = (clean - mean).where(finite, 0.0)
    nothing = values.new_full((1,), torch.nan)
    smallest = torch.cat([values.where(finite, torch.inf), nothing[:0].new_full((1,), torch.inf)]).amin()
    largest = torch.cat([values.where(finite, -torch.inf), nothing[:0].new_full((1,), -torch.inf)]).amax()
    none = count == 0
    numbers = [
        values.new_full((), values.numel()),
        mean,
        ((spread * spread).sum() / count).sqrt(),
        smallest.where(~none, torch.nan),
        largest.where(~none, torch.nan),
        (clean * clean).sum().sqrt(),
        (values == 0).sum(),
        values.isnan().sum(),
        (values == torch.inf).sum(),
        (values == -torch.inf).sum(),
    ]
    return torch.stack([number.double() for number in numbers])
