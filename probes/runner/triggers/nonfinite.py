"""Detection of values that are not finite: a cheap check, and an exact description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from probes.runner.triggers.event import TriggerEvent
from probes.tensors import DTYPE_NAMES, local, require_memory

NARROWEST = 2  # bytes of the smallest floating type for which torch can sum


def is_finite(tensor: Tensor) -> bool:
    """Whether every element of a tensor is finite.

    A sum is 20 to 40 times as fast as `isfinite`, and never finite if an element is not; one that overflows is checked again.

    Args:
        tensor: any shape, dtype and device, owned by the model; only read.

    Raises:
        NotCapturable: it has no bytes to look at, or they are in several pieces.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    value = _plain(tensor)
    total = value.sum().item()
    if total - total == 0:
        return True
    low, high = torch.aminmax(torch.view_as_real(value.resolve_conj()) if value.is_complex() else value)  # either is NaN if one is
    return bool(torch.isfinite(low).item() and torch.isfinite(high).item())


def _plain(tensor: Tensor) -> Tensor:
    """A detached dense tensor that can be summed."""
    kind = type(tensor)
    odd = (kind is not Tensor and kind is not torch.nn.Parameter) or tensor.is_meta or tensor.is_nested
    value = local(tensor) if odd or tensor.layout is not torch.strided else tensor.detach()
    require_memory(value)
    if value.dtype is torch.complex32:  # torch cannot sum it on the CPU
        return value.to(torch.complex64)
    return value.float() if value.element_size() < NARROWEST else value


@dataclass(frozen=True)
class NonfiniteEvent(TriggerEvent):
    """The first value of a step that is not finite.

    Attributes:
        index: place of the first element that is not finite, in row-major order.
        number: that element: `nan`, `inf`, `-inf`, or a complex number.
        nan: elements that are NaN.
        inf: elements that are infinite.
        elements: elements of the value.
        dtype: its dtype.
        shape: its shape.
        tensors: parameters and buffers of the module itself that are not finite either.
        source: where it was made.
    """

    index: tuple[int, ...]
    number: str
    nan: int
    inf: int
    elements: int
    dtype: str
    shape: tuple[int, ...]
    tensors: tuple[str, ...]
    source: tuple[str, str | None, str]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the file."""
        return {**super().as_dict(), "source": dict(zip(("kind", "module", "text"), self.source, strict=True))}

    @property
    def where(self) -> str:
        """The event and its place in the model."""
        index = f" at [{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.number} in {self.place}{index}"

    def __str__(self) -> str:
        count = f"{self.nan + self.inf:,} of {self.elements:,} elements are not finite ({self.nan:,} nan, {self.inf:,} inf)"
        own = f"; its own {', '.join(f'`{name}`' for name in self.tensors)} is not finite either" if self.tensors else ""
        made = f"; {self.source[2]}" if self.source[2] else ""
        return f"first non-finite value: {self.where}, {self.when}; {count}{made or own}"


def numbers(tensor: Tensor) -> dict[str, Any]:
    """Describe the elements of a tensor that are not finite: `index`, `number`, `nan`, `inf`, `elements`, `dtype` and `shape`.

    Args:
        tensor: any shape, dtype and device, owned by the model, with an element that is not finite; only read.
    """
    value = _plain(tensor)
    bad = torch.isfinite(value).logical_not_()
    nan = int(torch.isnan(value).sum())
    flat = int(bad.flatten().cpu().numpy().argmax())
    index = tuple(int(place) for place in torch.unravel_index(torch.tensor(flat), value.shape)) if value.ndim else ()
    element = value[index].item()
    known = {"index": index, "number": str(element), "nan": nan, "inf": int(bad.sum()) - nan, "elements": value.numel()}
    return {**known, "dtype": DTYPE_NAMES[tensor.dtype], "shape": tuple(value.shape)}
