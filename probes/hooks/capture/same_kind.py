"""Whether a tensor is of the same kind as another one, found by one call into torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Check = Callable[[Any], bool]


def never(_tensor: object) -> bool:
    """The check of a tensor that nothing is compared with."""
    return False


def _one_by_one(tensor: Tensor) -> Check:
    """The check without torch's guards: the same in seven calls."""
    kind, dtype, device, shape, strides = type(tensor), tensor.dtype, tensor.device, tensor.shape, tensor.stride()

    def check(other: Any) -> bool:
        try:  # sparse, nested and wrapped tensors raise at one of these
            return (
                type(other) is kind
                and other.dtype is dtype
                and other.device == device
                and other.shape == shape
                and other.stride() == strides
                and not (other.is_neg() or other.is_conj())
            )
        except RuntimeError:
            return False

    return check


def _by_guard(tensor: Tensor) -> Check:
    """The check of torch.compile's own guards: a third of the time, and one call in place of seven."""
    from torch._C._dynamo import guards

    make: Any = guards.TensorGuards  # torch's stubs do not know that it takes tensors
    check: Check = make(tensor, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    return check


def _distinguishes(make: Callable[[Tensor], Check]) -> bool:
    """Whether a check finds what it must: it is not part of torch's public interface, so a later release may change it."""
    try:
        plain = torch.zeros(2, 3, device="cpu")  # the program may have another default device
        further = (plain._neg_view(), torch.nn.Parameter(plain), plain.to_sparse())
        others = (plain.double(), torch.zeros(3, 2, device="cpu"), torch.zeros(3, 2, device="cpu").t(), *further)
        check = make(plain)
        return check(torch.ones(2, 3, device="cpu")) and not any(map(check, others))
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return False


same_kind_as: Callable[[Tensor], Check] = _by_guard if _distinguishes(_by_guard) else _one_by_one
"""Make the check for tensors of the kind of one that is neither negated nor conjugated: its class, dtype, device, shape and strides.

It holds no tensor. A difference in anything else that torch guards, such as `requires_grad`, may also count as one.
"""
