"""The facts on the local part of a distributed tensor that are needed to join the parts again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from probes.component import Transform
from probes.tensors import NotCapturable, of_this_rank, placement_name

ELEMENTWISE = ("abs", "cast", "difference")
MERGED = ("accumulate", "stats", "norm", "histogram")  # operations whose results on the parts can be combined to that of the whole
WHOLE: Mapping[str, object] = MappingProxyType({})  # the sharding of a tensor that is not distributed
GATHERED: Mapping[str, object] = MappingProxyType({"gathered": "full"})


class LocalParts:
    """Takes the local parts of the distributed tensors of one recorder, each with the attributes of its capture.

    Args:
        transforms: all transforms of the probe.

    Attributes:
        gather: whether a DTensor is put together on all ranks, by a collective.
        one: the sharding of all tensors that are compared with one another, or merged; None before the first.
    """

    __slots__ = ("_known", "gather", "one", "transforms")

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = tuple(transforms)
        self.gather = False
        self.one: Mapping[str, object] | None = None
        self._known: dict[tuple[object, ...], Mapping[str, object]] = {}

    def split(self, tensor: Tensor) -> tuple[Tensor, Mapping[str, object]]:
        """The local part of a tensor, and the attributes of its capture; equal shardings give the same object.

        Transforms and conditions get only the part, so they never communicate.

        Args:
            tensor: any shape, dtype and device, owned by the model.
        """
        if self.gather and hasattr(tensor, "full_tensor"):
            with torch.no_grad():
                return of_this_rank(tensor.full_tensor()), GATHERED
        name = sharding_name(tensor)
        if name is None:
            return of_this_rank(tensor), WHOLE
        if name not in self._known:
            self._known[name] = {**sharding(tensor), **(of_parts(self.transforms) if self.transforms else {})}
        return of_this_rank(tensor), self._known[name]

    def require_one(self, stated: Mapping[str, object]) -> None:
        """Refuse a sharding other than that of earlier tensors, because the numbers would describe different elements.

        Raises:
            NotCapturable: it is another one.
        """
        if self.one is None:
            self.one = stated
        elif stated is not self.one and not (is_whole(stated) and is_whole(self.one)):
            kinds = " and ".join(map(placements_text, (self.one, stated)))
            raise NotCapturable("no data", f"parts of tensors that are sharded in two ways ({kinds}) cannot be compared or merged")


def sharding(tensor: Tensor) -> dict[str, Any]:
    """The attributes of a series of a DTensor's local parts; empty for any other tensor.

    `sharding` has, in integers: the placement on each dimension of the mesh (`S(0)`, `R`, `P(sum)`), the global shape, sizes and
    names of the mesh, the coordinate of this rank in it, and the shape and offsets of its part.

    Args:
        tensor: any shape, dtype and device, owned by the model; nothing is communicated.
    """
    if not (hasattr(tensor, "placements") and hasattr(tensor, "device_mesh")):
        return {}
    mesh: Any = tensor.device_mesh
    shape, placements = list(tensor.shape), [placement_name(one) for one in tensor.placements]
    found: dict[str, Any] = {
        "placements": placements,
        "global_shape": shape,
        "mesh_shape": list(mesh.shape),
        "mesh_names": list(mesh.mesh_dim_names or ()),
        "coordinate": list(mesh.get_coordinate() or ()),
        **_place(tensor, mesh),
    }
    return {"placements": placements, "global_shape": shape, "sharding": found}


def sharding_name(tensor: Tensor) -> tuple[object, ...] | None:
    """The common facts of tensors with one sharding; None for a tensor that is not distributed."""
    if not (hasattr(tensor, "placements") and hasattr(tensor, "device_mesh")):
        return None
    return tensor.placements, tensor.device_mesh, tensor.shape


def is_whole(stated: Mapping[str, object]) -> bool:
    """Whether the local part of a tensor is all of it."""
    placements = stated.get("placements", [])
    return isinstance(placements, list) and all(placement == "R" for placement in placements)


def placements_text(stated: Mapping[str, object]) -> str:
    """The placements of a tensor, for messages."""
    placements = stated.get("placements")
    return f"`{', '.join(placements)}`" if isinstance(placements, list) else "not distributed"


def of_parts(transforms: Sequence[Transform]) -> dict[str, str]:
    """The attributes of a series of results of transforms on local parts; `merges` is the operation that combines them.

    Args:
        transforms: those of the probe.
    """
    found = {"transforms_of": "local part"}
    *before, last = (transform.model_dump() for transform in transforms)
    by_element = all(settings["kind"] in ELEMENTWISE and settings.get("mask") is None for settings in before)
    if (
        by_element
        and last["kind"] in MERGED
        and last.get("dims") is None
        and last.get("mask") is None
        and last.get("what", "moments") == "moments"
    ):
        found["merges"] = " ".join(filter(None, (last["kind"], last.get("order"), last.get("what"))))
    return found


def _place(tensor: Tensor, mesh: Any) -> dict[str, Any]:
    with suppress(ImportError, NotImplementedError, RuntimeError, ValueError):  # a private function that other releases may not have
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        placements: Any = tensor.placements  # type: ignore[attr-defined]  # a DTensor has them
        shape, offsets = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
        return {"local_shape": list(shape), "offsets": list(offsets)}
    return {}
