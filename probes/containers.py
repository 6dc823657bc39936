"""Copies of containers with other members, which leave the program's container as it is."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from types import SimpleNamespace
from typing import Any

from torch.utils import _pytree as pytree

from probes.tensors import LeafNotFound, children, key_names

KNOWN = {dict, list, tuple, deque, SimpleNamespace}
"""Classes whose copies hold their members apart from the original; those of other classes are checked."""


def with_members(value: Any, changes: Mapping[str, Any]) -> Any:
    """A shallow copy of a container with some members exchanged; its type is kept.

    Args:
        value: a container, owned by the model; it holds the same members afterwards.
        changes: the new members by the names that `children` gives.

    Raises:
        LeafNotFound: no rule says how such a value is built, or a copy shares its members with the original, or keeps an exchanged member
            in an attribute.
    """
    if type(value) in KNOWN:
        return _copied(value, changes)
    before = dict(children(value) or ())
    changes = {name: member for name, member in changes.items() if member is not before[name]}
    try:
        result = _copied(value, changes)
        _check(value, result, before, changes)
    except Exception as error:  # a class of the program may raise anything
        _restore(value, before, changes)
        raise LeafNotFound(f"a {type(value).__qualname__} cannot be rebuilt: {error}") from error
    return result


def _check(value: Any, result: Any, before: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Check that the copy alone has the changes, and has them everywhere.

    Raises:
        LeafNotFound: it has not.
    """
    if _held(value, changes):
        raise LeafNotFound("a copy of it shares its members with the original, so a change of one is a change of both")
    if len(_held(result, changes)) < len(changes) or dict(children(result) or ()).keys() != before.keys():
        raise LeafNotFound("a copy of it does not hold the members that it is given")
    gone = {id(before[name]) for name in changes}
    for name, held in _attributes(result):
        if id(held) in gone and (name in changes or name not in before):
            raise LeafNotFound(f"the attribute `{name}` of a copy keeps the member that was there before")


def _held(value: Any, changes: Mapping[str, Any]) -> list[str]:
    """The names of the changes that a container holds."""
    return [name for name, member in children(value) or () if name in changes and member is changes[name]]


def _restore(value: Any, before: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Give a container its members back, if the copy wrote into it."""
    for name in _held(value, changes):
        if isinstance(value, MutableMapping):
            value[key_names(value)[name]] = before[name]
        elif isinstance(value, MutableSequence | deque):
            value[int(name)] = before[name]
        else:
            object.__setattr__(value, name, before[name])


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """The attributes of an object, in its dictionary and its slots."""
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        for name, slot in vars(cls).items():
            if inspect.ismemberdescriptor(slot) and hasattr(value, name):
                yield name, getattr(value, name)


def _copied(value: Any, changes: Mapping[str, Any]) -> Any:
    """The copy, as the class of the container makes it."""
    result: Any = copy.copy(value)
    if isinstance(value, Mapping):
        if getattr(value, "__dict__", None) is value:  # `self.__dict__ = self`: its items are its attributes
            object.__setattr__(result, "__dict__", result)
        names = key_names(value)
        for name, member in changes.items():
            result[names[name]] = member
        return result
    if (dataclasses.is_dataclass(value) and not isinstance(value, type)) or isinstance(value, SimpleNamespace):
        for name, member in changes.items():
            object.__setattr__(result, name, member)
        return result
    members = children(value)
    if members is None:
        raise LeafNotFound("no rule says how it is built")
    items = [changes.get(name, member) for name, member in members]
    if isinstance(value, tuple):
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list | deque):
        for index, item in enumerate(items):
            result[index] = item
        return result
    rule = pytree.SUPPORTED_NODES[type(value)]
    return rule.unflatten_fn(items, rule.flatten_fn(value)[1])
