"""Copies of containers have their own members, or are refused, and leave the original as it was."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterator, MutableMapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from probes.containers import with_members
from probes.tensors import LeafNotFound, children


class Items(dict[str, Any]):
    """A dict whose items are its attributes."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.__dict__ = self


class Inner(MutableMapping[str, Any]):
    """A mapping around a dict, which a shallow copy shares."""

    def __init__(self, **items: Any) -> None:
        self.inner = items

    def __getitem__(self, key: str) -> Any:
        return self.inner[key]

    def __setitem__(self, key: str, member: Any) -> None:
        self.inner[key] = member

    def __delitem__(self, key: str) -> None:
        del self.inner[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


@dataclasses.dataclass
class Same:
    """Its copy is itself."""

    x: Tensor
    y: int = 1

    def __copy__(self) -> Same:
        return self


@dataclasses.dataclass
class Remembers:
    """Its attribute holds a field once more."""

    x: Tensor
    y: int = 1

    def __post_init__(self) -> None:
        self.first = self.x


class Deaf(UserDict[str, Any]):
    """It ignores new items once it is built."""

    def __setitem__(self, key: str, item: Any) -> None:
        if key not in self.data:
            super().__setitem__(key, item)


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Tensor
    y: int = 1


class Pair(NamedTuple):
    x: Tensor
    y: int = 1


X = torch.ones(2)


@pytest.mark.parametrize(
    "value",
    [
        {"x": X, "y": 1},
        OrderedDict(x=X, y=1),
        defaultdict(int, x=X, y=1),
        UserDict(x=X, y=1),
        Items(x=X, y=1),
        Slotted(X),
        Pair(X),
        SimpleNamespace(x=X, y=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_copy_has_the_new_member_as_item_and_attribute_and_the_original_the_old_one(value: Any) -> None:
    other = torch.zeros(2)
    copied = with_members(value, {"x": other})
    assert type(copied) is type(value)
    assert dict(children(copied) or ())["x"] is other
    assert getattr(copied, "x", other) is other
    assert dict(children(value) or ())["x"] is X
    assert getattr(value, "x", X) is X


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Inner(x=X, y=1), "a Inner cannot be rebuilt: a copy of it shares its members"),
        (Same(X), "a Same cannot be rebuilt: a copy of it shares its members"),
        (Deaf(x=X, y=1), "a Deaf cannot be rebuilt: a copy of it does not hold the members"),
        (Remembers(X), "a Remembers cannot be rebuilt: the attribute `first` of a copy keeps"),
        (MappingProxyType({"x": X}), "a mappingproxy cannot be rebuilt: cannot pickle"),
    ],
    ids=lambda case: type(case).__name__,
)
def test_a_container_whose_copy_is_not_independent_is_refused_by_its_class_and_stays_as_it_was(value: Any, message: str) -> None:
    before = children(value) or []
    with pytest.raises(LeafNotFound, match=message):
        with_members(value, {"x": torch.zeros(2)})
    assert all(now is then for (_, now), (_, then) in zip(children(value) or (), before, strict=True))


def test_a_sequence_keeps_its_class_and_the_other_members() -> None:
    for value in ([X, 1], (X, 1), deque([X, 1], maxlen=2)):
        assert with_members(value, {"1": 2}) == type(value)([X, 2])
