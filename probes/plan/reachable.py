"""The tensors that value paths can reach in the inputs and outputs of a call, also in objects of any class."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from probes.containers import with_members
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES, children
from probes.value_path import quoted

DEEPEST = 8  # keys; objects of any class may contain each other in a cycle


class ReachableTensor(NamedTuple):
    """A tensor of a call.

    Attributes:
        signature: its dtype and shape.
        keys: how many keys a path has to have to reach it: those down to the last attribute of an object of any class.
        shared: whether every container on the way can be rebuilt, so that `grad_input` of it is this module's share.
    """

    signature: Signature
    keys: int = 0
    shared: bool = True


def reachable(value: object, path: str) -> dict[str, ReachableTensor]:
    """The tensors below a value by leaf path.

    Args:
        value: anything that a module takes or returns; not changed.
        path: the path of `value` itself, such as `output`.
    """
    return dict(_below(value, path, ReachableTensor(Signature()), ()))


def _below(value: object, path: str, so_far: ReachableTensor, above: tuple[int, ...]) -> Iterator[tuple[str, ReachableTensor]]:
    if isinstance(value, Tensor):
        yield path, so_far._replace(signature=Signature(DTYPE_NAMES[value.dtype], tuple(value.shape)))
        return
    if len(above) >= DEEPEST or id(value) in above or isinstance(value, Module):
        return
    members: Any = children(value)
    if members is None:
        members = getattr(value, "__dict__", {}).items() if not isinstance(value, type) else ()
        so_far = so_far._replace(keys=len(above) + 1, shared=False)
    elif so_far.shared and not _rebuilds(value, dict(members)):
        so_far = so_far._replace(shared=False)
    for key, member in members:
        yield from _below(member, f"{path}.{quoted(key)}", so_far, (*above, id(value)))


def _rebuilds(value: object, members: Mapping[str, Any]) -> bool:
    """Whether a container can be copied with other members."""
    try:
        with_members(value, {name: _another(member) for name, member in members.items()})
    except Exception:  # the program's own class may raise anything
        return False
    return True


def _another(member: Any) -> Any:
    """Another tensor, or another container with the same content; any other object itself."""
    if isinstance(member, Tensor):
        return member.detach()
    if children(member) is None:
        return member
    return (*member,) if type(member) is tuple else copy.copy(member)
