"""Keep some elements, chosen once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import Signature

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Sample(Transform):
    """Keeps `size` elements at random positions, which are the same for all captures of equal shape; keeps all of a smaller value.

    Without `dim` the value is flattened in row-major order first. Positions depend only on `seed` and the number of
    elements; they are distinct and in ascending order.
    """

    kind: Literal["sample"] = "sample"
    size: int = Field(gt=0, description="Number of elements, or of indices of the axis, to keep.")
    seed: int = Field(default=0, ge=0, description="Seed of the positions.")
    dim: str | int | None = Field(default=None, description="Name or number of the axis to sample; default: the flattened value.")

    def out(self, signature: Signature) -> Signature:
        """One axis `sample`, or the axes of the input with one shortened.

        Raises:
            SignatureError: there is no such axis.
        """
        if self.dim is None:
            return Signature(signature.dtype, (self._kept(_elements(signature.shape)),), ("sample",))
        axis = signature.axis(self.dim)
        name = signature.dims[axis] if signature.dims else None
        shape = signature.shape and (*signature.shape[:axis], self._kept(signature.shape[axis]), *signature.shape[axis + 1 :])
        return signature.replace(shape=shape, coords={other: labels for other, labels in signature.coords.items() if other != name})

    def _kept(self, size: int | None) -> int | None:
        return None if size is None else min(self.size, size)

    def begin(self, signature: Signature) -> TransformFn:
        """One gather; the positions are drawn when a size is first seen, and kept on the device."""
        if self.dim is None:
            return _Sampling(self.size, self.seed, 0, flatten=True)
        return _Sampling(self.size, self.seed, signature.axis(self.dim), flatten=False)


def _elements(shape: Sequence[int | None] | None) -> int | None:
    sizes = shape if shape is not None else (None,)
    return None if None in sizes else prod(size for size in sizes if size is not None)


def positions(seed: int, size: int, count: int) -> list[int]:
    """Distinct positions below `size` in ascending order, by Floyd's method.

    It draws from `Random.random` only, the one method whose numbers Python promises to keep from version to version.
    """
    generator = Random(seed)
    chosen: set[int] = set()
    for last in range(size - count, size):
        drawn = int(generator.random() * (last + 1))
        chosen.add(last if drawn in chosen else drawn)
    return sorted(chosen)


class _Sampling:
    """Gathers the same positions from every tensor of a size."""

    def __init__(self, size: int, seed: int, axis: int, *, flatten: bool) -> None:
        self.size = size
        self.seed = seed
        self.axis = axis
        self.flatten = flatten
        self.known: dict[tuple[int, torch.device], tuple[slice | Tensor, ...]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        if self.flatten:
            tensor = tensor.reshape(-1)
        size = tensor.shape[self.axis]
        return tensor if size <= self.size else tensor[self._index(size, tensor.device)]

    def _index(self, size: int, device: torch.device) -> tuple[slice | Tensor, ...]:
        import torch

        if (size, device) not in self.known:
            chosen = torch.tensor(positions(self.seed, size, self.size), device=device)
            self.known[size, device] = (*(slice(None),) * self.axis, chosen)
        return self.known[size, device]
