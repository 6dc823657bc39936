"""Store part of an axis."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Transform, TransformFn
from probes.signature import Coord, Signature, SignatureError


class Select(Transform):
    """Keeps one index, several indices or a range of one axis; `index` removes the axis."""

    kind: Literal["select"] = "select"
    dim: str | int = Field(description="Name or number of the axis; negative numbers count from the last axis.")
    index: int | None = Field(default=None, description="Index to keep; negative numbers count from the end.")
    indices: tuple[int, ...] | None = Field(default=None, min_length=1, description="Indices to keep, in this order.")
    from_: int | None = Field(default=None, alias="from", description="First index to keep; negative numbers count from the end.")
    until: int | None = Field(default=None, description="First index after the range; negative numbers count from the end.")
    every: int | None = Field(default=None, gt=0, description="Keep every n-th index of the range, beginning with the first.")

    @model_validator(mode="after")
    def _one_way(self) -> Select:
        ranged = any(bound is not None for bound in (self.from_, self.until, self.every))
        if [self.index is not None, self.indices is not None, ranged].count(True) != 1:
            raise PydanticCustomError(
                "one_selection", "`select` needs exactly one of `index`, `indices` and a range (`from`, `until`, `every`)"
            )
        if self.from_ is not None and self.until is not None and self.from_ >= self.until and (self.from_ < 0) == (self.until < 0):
            raise PydanticCustomError("empty_range", "the range of `select` is empty; `until` must be larger than `from`")
        return self

    def out(self, signature: Signature) -> Signature:
        """The axis shortened, or gone.

        Raises:
            SignatureError: there is no such axis, or it is too short.
        """
        axis = signature.axis(self.dim)
        if signature.ndim is None:
            return signature.replace(shape=None, dims=None, coords={})
        size = signature.shape[axis] if signature.shape is not None else None
        self._check(size)
        kept: tuple[int | None, ...] = () if self.index is not None else (self._length(size),)
        return signature.replace(
            shape=signature.shape and (*signature.shape[:axis], *kept, *signature.shape[axis + 1 :]),
            dims=signature.dims and tuple(name for at, name in enumerate(signature.dims) if at != axis or kept),
            coords=self._coords(signature, axis),
        )

    def begin(self, signature: Signature) -> TransformFn:
        """A view of the input, or a copy of the chosen indices."""
        axis = signature.axis(self.dim)
        if self.indices is not None:
            return _gather(axis, self.indices)
        if self.index is not None:
            index = self.index
            return lambda tensor: tensor.select(axis, index)
        before = (slice(None),) * axis
        return lambda tensor: tensor[(*before, self._slice)]

    @property
    def _slice(self) -> slice:
        return slice(self.from_, self.until, self.every)

    def _length(self, size: int | None) -> int | None:
        if self.indices is not None:
            return len(self.indices)
        return None if size is None else len(range(size)[self._slice])

    def _check(self, size: int | None) -> None:
        """Refuse an axis if a bound or index is outside of it."""
        if size is None:
            return
        for index in (self.index, *(self.indices or ()), self.from_):
            if index is not None and not -size <= index < size:
                raise SignatureError(f"index {index} is out of range for axis `{self.dim}` of size {size}")

    def _coords(self, signature: Signature, axis: int) -> dict[str, Coord]:
        """The labels with those of the axis shortened alike."""
        name = signature.dims[axis] if signature.dims else None
        if name not in signature.coords:
            return signature.coords
        labels = signature.coords[name]
        others = {other: value for other, value in signature.coords.items() if other != name}
        if self.index is not None:
            return others
        return others | {name: tuple(labels[i] for i in self.indices) if self.indices is not None else labels[self._slice]}


def _gather(axis: int, indices: tuple[int, ...]) -> TransformFn:
    """Advanced indexing, which unlike `index_select` takes every dtype; the index tensor is kept on the device."""
    import torch

    before = (slice(None),) * axis
    known: dict[torch.device, tuple[slice | torch.Tensor, ...]] = {}

    def work(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device not in known:
            known[tensor.device] = (*before, torch.tensor(indices, device=tensor.device))
        return tensor[known[tensor.device]]

    return work
