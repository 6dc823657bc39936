"""The transforms of a probe, applied in order inside a hook."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from probes.component import Transform, TransformFn
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES, require_memory

MOST_SHAPES = 1024
"""Of so many shapes of a value the results are kept; texts and images can have as many as there are batches."""


class Pipeline:
    """A list of transforms, begun once for each (dtype, rank) of the values.

    Attributes:
        signatures: of the results, by (dtype, rank).
        sized: the result of each shape where its labels depend on the sizes of the value, by (dtype, rank).
    """

    __slots__ = ("begun", "dims", "signatures", "sized", "transforms")

    def __init__(self, transforms: Sequence[Transform], dims: tuple[str, ...] | None) -> None:
        self.transforms = tuple(transforms)
        self.dims = dims
        self.begun: dict[tuple[torch.dtype, int], tuple[TransformFn, ...]] = {}
        self.signatures: dict[tuple[torch.dtype, int], Signature] = {}
        self.sized: dict[tuple[torch.dtype, int], dict[torch.Size, Signature]] = {}

    def begin(self, tensor: Tensor) -> tuple[TransformFn, ...]:
        """Begin every transform for tensors of this dtype and rank.

        Raises:
            SignatureError: a transform cannot take such a tensor.
        """
        key = (tensor.dtype, tensor.ndim)
        start = signature = self.first(tensor)
        work = []
        for transform in self.transforms:
            following = transform.out(signature)  # raises if the transform cannot take it
            work.append(transform.begin(signature))
            signature = following
        self.signatures[key] = signature
        if signature.coords and self._depends_on_sizes(start, signature):
            self.sized[key] = {tensor.shape: signature}
        self.begun[key] = tuple(work)
        return self.begun[key]

    def first(self, tensor: Tensor) -> Signature:
        """The signature of a value before the first transform."""
        return Signature(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape), self.dims)

    def result(self, signature: Signature) -> Signature:
        """The signature of the result for that of a value.

        Raises:
            SignatureError: a transform cannot take such a value.
        """
        for transform in self.transforms:
            signature = transform.out(signature)
        return signature

    def _depends_on_sizes(self, start: Signature, found: Signature) -> bool:
        """Whether a result has other names or labels if the sizes of the value are not known."""
        try:
            unknown = self.result(start.replace(shape=(None,) * (start.ndim or 0)))
        except Exception:  # a plug-in may not know sizes that are None; then each shape has its own result
            return True
        return (unknown.dims, unknown.coords) != (found.dims, found.coords)

    def signature_of(self, tensor: Tensor) -> Signature:
        """The signature of the result for a value that was begun."""
        key = (tensor.dtype, tensor.ndim)
        of_shapes = self.sized.get(key)
        if of_shapes is None:
            return self.signatures[key]
        if tensor.shape not in of_shapes:
            if len(of_shapes) >= MOST_SHAPES:
                of_shapes.clear()
            of_shapes[tensor.shape] = self.result(self.first(tensor))
        return of_shapes[tensor.shape]

    def __call__(self, tensor: Tensor) -> tuple[Tensor, Signature]:
        """Run the transforms on a tensor that the model owns; the result may share its memory.

        Raises:
            NotCapturable: the tensor has no memory.
        """
        key = (tensor.dtype, tensor.ndim)
        work = self.begun.get(key) or self.begin(tensor)
        value = tensor.detach()
        require_memory(value)
        if value.is_neg() or value.is_conj():  # numpy, and so many transforms, does not know these bits
            value = value.resolve_neg().resolve_conj()
        kind = value.device.type
        if torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                for step in work:
                    value = step(value)
        else:
            for step in work:
                value = step(value)
        return value, self.signature_of(tensor) if self.sized else self.signatures[key]


class LaterTransforms(Pipeline):
    """The transforms after an accumulation or a comparison, which start with the names and labels of its result.

    Attributes:
        start: the signature of its result.
    """

    __slots__ = ("start",)

    def __init__(self, transforms: Sequence[Transform]) -> None:
        super().__init__(transforms, None)
        self.start = Signature()

    def start_with(self, signature: Signature) -> None:
        """Continue with results of this signature."""
        if signature is not self.start:
            if (signature.dims, signature.coords) != (self.start.dims, self.start.coords):
                self.begun.clear()
                self.sized.clear()
            self.start = signature

    def first(self, tensor: Tensor) -> Signature:
        """The signature of a result."""
        return self.start
