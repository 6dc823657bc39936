"""Digests and sums of the contents of parameters and buffers; the model does not change."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from probes.digest import Hasher
from probes.provenance.element_sum import Places, element_sum, part_places, whole_places
from probes.run_directory.manifest import (
    ModelRecord,
    ModuleRecord,
    ShardingRecord,
    TensorRecord,
    WeightsRecord,
    sum_text,
    weights_of_models,
)
from probes.tensors import DTYPE_NAMES, NotCapturable, local, placement_name

_PIECE_BYTES = 64 << 20


class ModuleNode(Protocol):
    """The interface of a module in a tree."""

    @property
    def module(self) -> Module:
        """The module itself, inside its wrappers."""


class ModuleTree(Protocol):
    """The modules of a model by canonical path, wrappers stripped; the plan's `Tree` is one."""

    @property
    def nodes(self) -> Mapping[str, ModuleNode]:
        """Every module by every path it has, parents first."""


def tensor_hex(tensor: Tensor) -> str:
    """BLAKE3 of a tensor's bytes, contiguous and little-endian.

    Args:
        tensor: any shape, dtype and device, owned by the model; read from its own memory on the CPU, elsewhere in pieces.

    Raises:
        NotCapturable: the tensor has no bytes.
    """
    return _digest(local(tensor))


def _digest(dense: Tensor) -> str:
    hasher = Hasher()
    for piece in _pieces(dense):
        if piece.nbytes:
            hasher.update(memoryview((ctypes.c_ubyte * piece.nbytes).from_address(piece.data_ptr())).cast("B"))
    return str(hasher.hexdigest())


def _pieces(dense: Tensor) -> Iterator[Tensor]:
    if dense.device.type == "cpu":
        yield dense
        return
    flat = dense.reshape(-1)
    step = max(_PIECE_BYTES // dense.element_size(), 1)
    for start in range(0, flat.numel(), step):
        yield flat[start : start + step].cpu()


def model_record(name: str, tree: ModuleTree, digests: bool, unknown: dict[str, str]) -> ModelRecord:
    """Class, module tree and tensors of a model.

    Args:
        name: the model's name in the spec.
        tree: its modules; `_parameters` and `_buffers` are read directly, so no parametrization is computed.
        digests: whether to hash and sum up what is in the tensors.
        unknown: takes what could not be found out, and why.
    """
    modules: list[ModuleRecord] = []
    first: dict[int, str] = {}
    for path, node in tree.nodes.items():
        met = first.setdefault(id(node.module), path)
        modules.append(ModuleRecord(path=path, type=type_name(node.module), same_as=met if met != path else None))
    tensors = tuple(_tensor_record(digests, unknown, *found) for found in _tensors(tree))
    return ModelRecord(name=name, type=modules[0].type, modules=tuple(modules), tensors=tensors)


def weights_now(trees: Mapping[str, ModuleTree]) -> dict[str, Any]:
    """The parameters and buffers of the models as they are now, for a closing record.

    Returns:
        `models`, a table of tensors for each, and `weights`, the same digest as the manifest's at the start; it is left out if a tensor
        has no bytes.
    """
    tables = [
        WeightsRecord.model_construct(name=name, tensors=tuple(_tensor_record(True, {}, *found) for found in _tensors(tree)))
        for name, tree in trees.items()
    ]
    whole = weights_of_models(tables)
    models = [table.model_dump(mode="json", exclude_none=True) for table in tables]
    return {"models": models, **({"weights": whole} if whole is not None else {})}


def type_name(module: Module) -> str:
    """The class of a module with its Python module."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _tensors(tree: ModuleTree) -> Iterator[tuple[str, str, Tensor, str | None]]:
    """Name, role, tensor and the name under which it was first found."""
    first: dict[int, str] = {}
    for path, node in tree.nodes.items():
        for role, table in (("parameter", node.module._parameters), ("buffer", node.module._buffers)):
            for key, tensor in table.items():
                if tensor is not None:
                    name = f"{path}.{key}" if path else key
                    met = first.setdefault(id(tensor), name)
                    yield name, role, tensor, met if met != name else None


def _tensor_record(digests: bool, unknown: dict[str, str], name: str, role: str, tensor: Tensor, met: str | None) -> TensorRecord:
    digest = summed = None
    sharding = _sharding(tensor)
    lazy = isinstance(tensor, UninitializedParameter | UninitializedBuffer)
    if digests and met is None and not lazy:
        try:
            dense = local(tensor)
            digest = _digest(dense)
            summed = _sum(dense, tensor, sharding)
        except NotCapturable as error:
            unknown[f"weights.{name}"] = str(error)
    if lazy:
        unknown[f"weights.{name}"] = "the parameter is not initialised before the first call"
    return TensorRecord.model_construct(
        name=name,
        role=role,
        dtype=DTYPE_NAMES[tensor.dtype],
        shape=() if lazy else tuple(tensor.shape),
        trained=tensor.requires_grad,
        same_as=met,
        digest=digest,
        sum=summed,
        sharding=sharding,
    )


def _sharding(tensor: Tensor) -> ShardingRecord | None:
    """The layout of a DTensor on the ranks; None for any other tensor, and on a rank outside of its mesh."""
    if not (hasattr(tensor, "placements") and hasattr(tensor, "device_mesh")):
        return None
    mesh: Any = tensor.device_mesh
    at = mesh.get_coordinate()
    if at is None:
        return None
    names = tuple(map(placement_name, tensor.placements))
    return ShardingRecord.model_construct(placements=names, mesh_shape=tuple(mesh.shape), coordinate=tuple(at))


def _part_places(sharding: ShardingRecord, tensor: Tensor) -> list[Places] | None:
    return part_places(sharding.placements, sharding.mesh_shape, sharding.coordinate, tensor.shape)


def _sum(dense: Tensor, tensor: Tensor, sharding: ShardingRecord | None) -> str | None:
    """The sum of the elements that this rank holds; None if their places in the whole are not known."""
    places = whole_places(tensor.shape) if sharding is None else _part_places(sharding, tensor)
    if places is None or tuple(dense.shape) != tuple(map(len, places)):
        return None
    with torch.no_grad(), suppress(RuntimeError, NotImplementedError):  # of a dtype that torch cannot view as words
        return sum_text(element_sum(dense, places))
    return None


def devices_of(trees: Mapping[str, ModuleTree]) -> set[torch.device]:
    """The devices of the parameters of some models."""
    places = (node.module for tree in trees.values() for node in tree.nodes.values())
    return {tensor.device for module in places for tensor in module._parameters.values() if tensor is not None}
