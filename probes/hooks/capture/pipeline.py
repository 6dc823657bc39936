"""The transforms of a probe, applied in order inside a hook."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from probes.component import Transform, TransformFn
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES


class Pipeline:
    """A list of transforms, begun once for each (dtype, rank) of the values."""

    __slots__ = ("begun", "dims", "signatures", "transforms")

    def __init__(self, transforms: Sequence[Transform], dims: tuple[str, ...] | None) -> None:
        self.transforms = tuple(transforms)
        self.dims = dims
        self.begun: dict[tuple[torch.dtype, int], tuple[TransformFn, ...]] = {}
        self.signatures: dict[tuple[torch.dtype, int], Signature] = {}

    def begin(self, tensor: Tensor) -> tuple[TransformFn, ...]:
        """Begin every transform for tensors of this dtype and rank.

        Raises:
            SignatureError: a transform cannot take such a tensor.
        """
        key = (tensor.dtype, tensor.ndim)
        signature = self.first(tensor)
        work = []
        for transform in self.transforms:
            following = transform.out(signature)  # raises if the transform cannot take it
            work.append(transform.begin(signature))
            signature = following
        self.signatures[key] = signature
        self.begun[key] = tuple(work)
        return self.begun[key]

    def first(self, tensor: Tensor) -> Signature:
        """The signature of a value before the first transform."""
        return Signature(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape), self.dims)

    def __call__(self, tensor: Tensor) -> tuple[Tensor, Signature]:
        """Run the transforms on a tensor that the model owns; the result may share its memory."""
        key = (tensor.dtype, tensor.ndim)
        work = self.begun.get(key) or self.begin(tensor)
        value = tensor.detach()
        kind = value.device.type
        if torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                for step in work:
                    value = step(value)
        else:
            for step in work:
                value = step(value)
        return value, self.signatures[key]


class LaterTransforms(Pipeline):
    """The transforms after an accumulation or a comparison, which start with the names and labels of its result.

    Attributes:
        start: the signature of its result.
    """

    __slots__ = ("start",)

    def __init__(self, transforms: Sequence[Transform]) -> None:
        super().__init__(transforms, None)
        self.start = Signature()

    def first(self, tensor: Tensor) -> Signature:
        """The signature of a result."""
        return self.start
