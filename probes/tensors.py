"""Tensors inside nested values, and the bytes inside tensors."""

from __future__ import annotations

import dataclasses
import inspect
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from probes.value_path import quoted

DTYPE_NAMES: dict[torch.dtype, str] = {
    value: str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
}

is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # whether `vmap`, `grad` or `jvp` looks through a tensor
graph_task = torch._C._current_graph_task_id  # -1 outside of a backward; torch's own autograd/graph.py uses it too


class NotCapturable(ValueError):
    """A value has no bytes that could be stored; `reason` is from the closed list of the accounts.

    Attributes:
        reason: such as `functorch`, `no data` or `no share`.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class LeafNotFound(LookupError):
    """A value path leads to nothing in the value; the message lists what the value has instead."""


def in_backward() -> bool:
    """Whether a backward is running on this thread, so that a forward is a recompute."""
    return bool(graph_task() != -1)


def children(value: object) -> list[tuple[str, Any]] | None:
    """The keyed members of a container, or None if `value` is not one.

    A mapping (a ModelOutput too) has its keys, a dataclass, a namedtuple and a SimpleNamespace their field names, a sequence indices,
    and a class that is registered with torch's pytree what its rule says. A field that was never set is not a member.
    """
    if isinstance(value, Mapping):
        return [(name, value[key]) for name, key in key_names(value).items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if hasattr(value, field.name)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, tuple) and hasattr(value, "n_sequence_fields"):  # torch.return_types are C structure sequences
        names = [name for name in dir(type(value)) if type(getattr(type(value), name)).__name__ == "member_descriptor"]
        return sorted(((name, getattr(value, name)) for name in names), key=lambda pair: _position(value, pair[1]))
    if isinstance(value, list | tuple | deque):
        return [(str(index), member) for index, member in enumerate(value)]
    if isinstance(value, SimpleNamespace):
        return list(vars(value).items())
    return _registered(value) if type(value) in pytree.SUPPORTED_NODES else None


NO_SHARE = "its container cannot be rebuilt, so only the total of all consumers can be taken (`grad_input_total`)"
"""The reason why there is no `grad_input` of a tensor."""


def key_names(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """The names of a mapping's keys in value paths, each with its key; `0` next to `"0"` is named `0 (int)`."""
    texts = {key for key in mapping if isinstance(key, str)}
    return {(key if isinstance(key, str) else f"{key} ({type(key).__name__})" if str(key) in texts else str(key)): key for key in mapping}


def _registered(value: object) -> list[tuple[str, Any]]:
    """The members of a value of a class that is registered with torch's pytree, by its own names for them, or by index."""
    rule = pytree.SUPPORTED_NODES[type(value)]
    if rule.flatten_with_keys_fn is not None:
        entries, _ = rule.flatten_with_keys_fn(value)
        return [(str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key)))), member) for key, member in entries]
    return [(str(index), member) for index, member in enumerate(rule.flatten_fn(value)[0])]


def attribute(value: object, name: str) -> Any:
    """An attribute of an object of any class, in its dictionary or a slot; properties are not called.

    Raises:
        LeafNotFound: there is none.
    """
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict) and name in own:
        return own[name]
    slot = inspect.getattr_static(type(value), name, None)
    if not isinstance(value, Tensor) and inspect.ismemberdescriptor(slot) and hasattr(value, name):
        return getattr(value, name)
    raise LeafNotFound(f"a {type(value).__qualname__} has no attribute `{name}`")


def _position(sequence: Sequence[object], member: object) -> int:
    return next(index for index, item in enumerate(sequence) if item is member)


def leaves(value: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor below `value` with its leaf path, in the value's own order.

    Args:
        value: anything a module takes or returns.
        path: the leaf path of `value` itself, such as `output`.
    """
    if isinstance(value, Tensor):
        yield path, value
        return
    for key, member in children(value) or ():
        yield from leaves(member, f"{path}.{quoted(key)}")


def opaque(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Paths and types of the members without a visible tensor, such as a cache object."""
    if value is None or isinstance(value, Tensor | bool | int | float | str | torch.dtype | torch.device | torch.Size):
        return
    members = children(value)
    if members is None:
        yield path, type(value).__qualname__
    for key, member in members or ():
        yield from opaque(member, f"{path}.{quoted(key)}")


def follow(value: object, keys: Sequence[str], path: str) -> list[tuple[str, object]]:
    """The members that a value path's keys lead to, with their paths; `*` selects every member.

    Raises:
        LeafNotFound: a key leads nowhere; the message lists the keys there are.
    """
    found = [(path, value)]
    for key in keys:
        found = [step for at, member in found for step in _descend(member, key, at)]
    return found


def _descend(value: object, key: str, path: str) -> list[tuple[str, object]]:
    members = children(value)
    if members is not None and key == "*":
        return [(f"{path}.{quoted(name)}", member) for name, member in members]
    for name, member in members or ():
        if name == key:
            return [(f"{path}.{quoted(name)}", member)]
    with suppress(LeafNotFound):
        return [(f"{path}.{quoted(key)}", attribute(value, key))]
    if members is None:
        raise LeafNotFound(f"`{path}` is {describe(value)}, which has no member `{key}`")
    raise LeafNotFound(f"`{path}` has no member `{key}`; it has {', '.join(quoted(name) for name, _ in members) or 'none'}")


def describe(value: object) -> str:
    """A description of a value without tensors; for an opaque object with the value to capture instead."""
    name = f"a {type(value).__qualname__}"
    if value is None or isinstance(value, Tensor) or children(value) is not None:
        return "None" if value is None else name
    if isinstance(value, bool | int | float | str):
        return name
    if "Cache" in type(value).__name__:
        return f"{name}, an opaque cache object (the keys and values in it are the outputs of the attention's projections: probe those)"
    kept = [key for key, member in (getattr(value, "__dict__", None) or {}).items() if isinstance(member, Tensor)]
    hint = f"; its attributes with tensors are {', '.join(f'`{key}`' for key in kept[:6])}: name one in the value path" if kept else ""
    return f"{name}, an opaque object whose content is not read{hint}"


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor inside the wrappers of functorch's `grad` and `jvp`; other tensors are returned unchanged.

    Args:
        tensor: any, owned by the model.

    Raises:
        NotCapturable: under `vmap` one call represents many, whose values have another shape than the module sees.
    """
    while is_wrapped(tensor):
        if not torch._C._functorch.is_gradtrackingtensor(tensor):
            raise NotCapturable("functorch", "the tensor is wrapped by a functorch transform (`vmap`)")
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


class Composite(NotCapturable):
    """A tensor consists of several pieces of memory.

    Attributes:
        layout: how the pieces make up the tensor.
        parts: the pieces by name: dense tensors, whose memory may be the model's.
    """

    def __init__(self, layout: str, parts: dict[str, Tensor]) -> None:
        self.layout = layout
        self.parts = parts
        super().__init__("no data", f"the tensor is {layout}: {', '.join(parts)}")


def components(tensor: Tensor) -> Composite | None:
    """The pieces of a sparse, nested or quantised tensor, with its size; None if it is dense.

    Args:
        tensor: any, owned by the model.
    """
    with torch.no_grad():
        tensor = tensor.detach()
        if tensor.is_nested:
            return _nested(tensor)
        if tensor.is_quantized:
            return _quantized(tensor)
        if tensor.layout in _SPARSE:
            return _sparse(tensor)
    return None


_SPARSE = {
    torch.sparse_coo: (),
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def _sparse(tensor: Tensor) -> Composite:
    size = {"size": torch.tensor(tensor.shape)}
    name = str(tensor.layout).removeprefix("torch.")
    if tensor.layout is torch.sparse_coo:
        coalesced = torch.tensor(tensor.is_coalesced())
        return Composite(name, {"indices": tensor._indices(), "values": tensor._values(), "coalesced": coalesced, **size})
    indices = {method: getattr(tensor, method)() for method in _SPARSE[tensor.layout]}
    return Composite(name, {**indices, "values": tensor.values(), **size})


def _nested(tensor: Tensor) -> Composite:
    if tensor.layout is torch.jagged:
        lengths = tensor.lengths()  # type: ignore[attr-defined]  # torch's stubs do not know jagged tensors
        known = {"lengths": lengths} if lengths is not None else {}
        return Composite("jagged", {"values": tensor.values(), "offsets": tensor.offsets(), **known})  # type: ignore[attr-defined]  # as above
    parts = tensor.unbind()
    sizes = torch.tensor([list(part.shape) for part in parts])
    flat = torch.cat([part.reshape(-1) for part in parts]) if parts else torch.empty(0, dtype=tensor.dtype)
    return Composite("nested", {"values": flat, "sizes": sizes})


def _quantized(tensor: Tensor) -> Composite:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale, zero = torch.tensor(tensor.q_scale(), dtype=torch.float64), torch.tensor(tensor.q_zero_point())
        return Composite("quantized", {"int_repr": tensor.int_repr(), "scale": scale, "zero_point": zero})
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    axis = torch.tensor(tensor.q_per_channel_axis())
    return Composite("quantized", {"int_repr": tensor.int_repr(), "scale": scales, "zero_point": zeros, "axis": axis})


def placement_name(placement: Any) -> str:
    """A placement of a DTensor in torch's short form since 2.6: `S(0)`, `R`, `P(sum)`; a strided shard is `S(0, 2)`."""
    if placement.is_replicate():
        return "R"
    if placement.is_partial():
        return f"P({getattr(placement, 'reduce_op', 'sum')})"
    strided = getattr(placement, "split_factor", None)
    return f"S({placement.dim})" if strided is None else f"S({placement.dim}, {strided})"


def of_this_rank(tensor: Tensor) -> Tensor:
    """The local part of a DTensor on this rank, after waiting for a running collective.

    Nothing is communicated; other tensors are returned as they are.

    Args:
        tensor: any shape, dtype and device, owned by the model.
    """
    with torch.no_grad():
        if hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
        if hasattr(tensor, "trigger_wait"):  # torch's AsyncCollectiveTensor, which has no public name
            tensor = tensor.trigger_wait()
    return tensor


NO_MEMORY = "the tensor has a shape but no memory (a fake tensor, or its storage was freed)"
"""The reason why the elements of a tensor cannot be read."""


def has_memory(tensor: Tensor) -> bool:
    """Whether the storage of a tensor has its elements: reading them ends the process otherwise.

    The address does not tell: a view of freed storage has one, unless it is at the start of it.

    Args:
        tensor: any shape, dtype and device, owned by the model; only its sizes are read.
    """
    if tensor.layout is not torch.strided or not tensor.numel():
        return True
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    elements = tensor.numel() if tensor.is_contiguous() else 1 + sum((size - 1) * stride for size, stride in sizes)
    return (tensor.storage_offset() + elements) * tensor.itemsize <= tensor.untyped_storage().nbytes()


def require_memory(tensor: Tensor) -> None:
    """Refuse a tensor whose elements cannot be read.

    Raises:
        NotCapturable: it has no memory.
    """
    if not has_memory(tensor):
        raise NotCapturable("no data", NO_MEMORY)


def local(tensor: Tensor) -> Tensor:
    """The dense tensor with the bytes of `tensor`: this rank's shard of a DTensor, conjugation and sign resolved.

    Args:
        tensor: any shape, dtype and device, owned by the model.

    Returns:
        A detached contiguous tensor, which may share memory with `tensor`.

    Raises:
        NotCapturable: there are no such bytes.
        Composite: they are in several pieces.
    """
    tensor = unwrapped(tensor)
    if type(tensor) is not Tensor:
        tensor = of_this_rank(tensor)
    if tensor.is_meta:
        raise NotCapturable("no data", "the tensor is on the meta device, which has no memory")
    if tensor.is_mkldnn:
        tensor = tensor.to_dense()
    composite = components(tensor)
    if composite is not None:
        raise composite
    if tensor.layout is not torch.strided:
        raise NotCapturable("no data", f"the tensor is {tensor.layout}, which is not known here")
    with torch.no_grad():
        dense = tensor.detach()
        require_memory(dense)
        dense = dense.resolve_conj().resolve_neg().contiguous()
    if dense.data_ptr() == 0 and dense.nbytes:
        raise NotCapturable("no data", NO_MEMORY)
    return dense
