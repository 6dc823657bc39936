"""Sums of integers, exact or refused."""

from __future__ import annotations

import torch
from torch import Tensor

from probes.signature import SignatureError

LOW = (1 << 32) - 1


def exact_sum(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The sums over axes, as int64.

    Elements of up to 32 bits cannot overflow below 2**31 elements. Those of 64 bits are added in two halves of 32 bits; to see
    whether the sum fits, it waits for an accelerator.

    Args:
        tensor: of integers or booleans, any shape and device; not changed.
        axes: the axes to reduce.

    Raises:
        SignatureError: a sum is outside of int64.
    """
    if tensor.dtype not in (torch.int64, torch.uint64):
        return _sum(tensor.to(torch.int64), axes)
    bits = tensor.view(torch.int64) if tensor.dtype is torch.uint64 else tensor
    high = (bits >> 32) & LOW if tensor.dtype is torch.uint64 else bits >> 32
    low_sum = _sum(bits & LOW, axes)
    high_sum = _sum(high, axes) + (low_sum >> 32)
    if bool(((high_sum < -(1 << 31)) | (high_sum >= 1 << 31)).any()):
        raise SignatureError("the sum of these integers is outside of int64; put a cast to float64 before it")
    return (high_sum << 32) | (low_sum & LOW)


def _sum(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    return tensor.sum(axes) if axes else tensor.clone()
