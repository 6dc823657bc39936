"""Tensors inside nested values, and the bytes inside tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from probes.value import quoted

DTYPE_NAMES: dict[torch.dtype, str] = {
    value: str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
}

_functorch_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
graph_task = torch._C._current_graph_task_id  # -1 outside a backward; torch's own autograd/graph.py asks it too


class NotCapturable(ValueError):
    """A value has no bytes that could be stored; `reason` is from the closed list of the accounts.

    Attributes:
        reason: `functorch`, `no data` or `opaque`.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class LeafNotFound(LookupError):
    """A value path leads to nothing in the value at hand; the message says what there is instead."""


def in_backward() -> bool:
    """Whether a backward is running on this thread, so that a forward seen now is a recompute."""
    return bool(graph_task() != -1)


def children(value: object) -> list[tuple[str, Any]] | None:
    """The keyed members of a container, or None where `value` is not one.

    A mapping (a ModelOutput too) has its keys, a dataclass and a namedtuple their field names, a list or tuple indices.
    """
    if isinstance(value, Mapping):
        return [(str(key), member) for key, member in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, tuple) and hasattr(value, "n_sequence_fields"):  # torch.return_types are C structure sequences
        names = [name for name in dir(type(value)) if type(getattr(type(value), name)).__name__ == "member_descriptor"]
        return sorted(((name, getattr(value, name)) for name in names), key=lambda pair: _position(value, pair[1]))
    if isinstance(value, list | tuple):
        return [(str(index), member) for index, member in enumerate(value)]
    return None


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
    """Paths and types of the members that hold no tensor we can see, such as a cache object."""
    if value is None or isinstance(value, Tensor | bool | int | float | str | torch.dtype | torch.device | torch.Size):
        return
    members = children(value)
    if members is None:
        yield path, type(value).__qualname__
    for key, member in members or ():
        yield from opaque(member, f"{path}.{quoted(key)}")


def follow(value: object, keys: Sequence[str], path: str) -> list[tuple[str, object]]:
    """The members that a value path's keys lead to, with their paths; `*` stands for every member.

    Raises:
        LeafNotFound: a key leads nowhere; the message lists the keys there are.
    """
    found = [(path, value)]
    for key in keys:
        found = [step for at, member in found for step in _descend(member, key, at)]
    return found


def _descend(value: object, key: str, path: str) -> list[tuple[str, object]]:
    members = children(value)
    if members is None:
        raise LeafNotFound(f"`{path}` is a {type(value).__name__}, which has no member `{key}`")
    if key == "*":
        return [(f"{path}.{quoted(name)}", member) for name, member in members]
    for name, member in members:
        if name == key:
            return [(f"{path}.{quoted(name)}", member)]
    raise LeafNotFound(f"`{path}` has no member `{key}`; it has {', '.join(quoted(name) for name, _ in members) or 'none'}")


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a functorch transform (vmap, grad, jvp) is looking through this tensor."""
    return bool(_functorch_wrapped(tensor))


def local(tensor: Tensor) -> Tensor:
    """The dense tensor whose bytes stand for `tensor`: this rank's shard of a DTensor, conjugation and sign resolved.

    Args:
        tensor: any shape, dtype and device, owned by the model.

    Returns:
        A detached contiguous tensor, which may share memory with `tensor`.

    Raises:
        NotCapturable: there are no such bytes.
    """
    if is_wrapped(tensor):
        raise NotCapturable("functorch", "the tensor is wrapped by a functorch transform")
    if type(tensor) is not Tensor and hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
        raise NotCapturable("no data", f"the tensor is {'nested' if tensor.is_nested else tensor.layout}, not a dense one")
    with torch.no_grad():
        dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if dense.data_ptr() == 0 and dense.nbytes:
        raise NotCapturable("no data", "the tensor has a shape but no memory (a fake tensor, or its storage was freed)")
    return dense
