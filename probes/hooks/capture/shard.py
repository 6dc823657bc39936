"""What has to be known of the part of a distributed tensor that a rank holds, so that the parts can be put together again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from torch import Tensor

from probes.component import Transform

MERGED = ("stats", "norm", "histogram")  # whose results over all axes of some parts make that of the whole


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
    shape, placements = list(tensor.shape), [_named(one) for one in tensor.placements]
    found: dict[str, Any] = {
        "placements": placements,
        "global_shape": shape,
        "mesh_shape": list(mesh.shape),
        "mesh_names": list(mesh.mesh_dim_names or ()),
        "coordinate": list(mesh.get_coordinate() or ()),
        **_place(tensor, mesh),
    }
    return {"placements": placements, "global_shape": shape, "sharding": found}


def of_parts(transforms: Sequence[Transform]) -> dict[str, str]:
    """The attributes of a series of results of transforms on local parts; `merges` is how those of all parts make that of the whole.

    Args:
        transforms: those of the probe.
    """
    found = {"transforms_of": "local part"}
    settings = transforms[0].model_dump() if len(transforms) == 1 else {}
    if settings.get("kind") in MERGED and settings.get("dims") is None and settings.get("mask") is None:
        found["merges"] = " ".join(filter(None, (settings["kind"], settings.get("order"))))
    return found


def _named(placement: Any) -> str:
    """A placement as torch writes it in short since 2.6: `S(0)`, `R`, `P(sum)`."""
    if placement.is_replicate():
        return "R"
    if placement.is_partial():
        return f"P({getattr(placement, 'reduce_op', 'sum')})"
    strided = getattr(placement, "split_factor", None)
    return f"S({placement.dim})" if strided is None else f"S({placement.dim}, {strided})"


def _place(tensor: Tensor, mesh: Any) -> dict[str, Any]:
    with suppress(ImportError, NotImplementedError, RuntimeError, ValueError):  # a private function, which other releases may not have
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        placements: Any = tensor.placements  # type: ignore[attr-defined]  # a DTensor has them
        shape, offsets = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
        return {"local_shape": list(shape), "offsets": list(offsets)}
    return {}
