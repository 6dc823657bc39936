"""Transforms as a spec makes them: from plain data, through the registry."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from probes.component import TensorComparison, Transform
from probes.registry import component
from probes.signature import Signature


def made(kind: str, **keys: Any) -> Transform:
    """The transform of a kind; a key that Python reserves is written with an underscore behind."""
    data = {name.rstrip("_"): value for name, value in keys.items()}
    transform = component("transform", kind).model_validate({"kind": kind, **data})
    assert isinstance(transform, Transform)
    return transform


def seen(value: Tensor, *dims: str) -> Signature:
    """The signature of a tensor."""
    return Signature(str(value.dtype).removeprefix("torch."), tuple(value.shape), dims or None)


def applied(transform: Transform, value: Tensor, *dims: str) -> Tensor:
    """The result of one begun transform."""
    return transform.begin(seen(value, *dims))(value)


def compared(transform: Transform, value: Tensor, other: Tensor, *dims: str) -> Tensor:
    """The result of a comparison of two tensors."""
    assert isinstance(transform, TensorComparison)
    return transform.compare(seen(value, *dims))(value, other)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether dtype, shape and every bit agree, NaN too."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return bool((left.contiguous().reshape(-1).view(torch.uint8) == right.contiguous().reshape(-1).view(torch.uint8)).all())
