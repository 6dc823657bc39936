"""Leaves of nested values, and the bytes of a tensor."""

from __future__ import annotations

import collections
import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch.utils import _pytree as pytree

from probes.tensors import LeafNotFound, NotCapturable, children, follow, leaves, local, opaque
from probes.value_path import ValuePath

Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    note: str = ""


def paths(value: object) -> list[str]:
    return [path for path, _ in leaves(value, "output")]


def test_a_plain_tensor_is_its_own_leaf() -> None:
    assert paths(torch.ones(2)) == ["output"]


def test_a_dataclass_is_walked_by_its_field_names() -> None:
    assert paths(Output(torch.ones(1), (torch.ones(1), torch.ones(1)))) == ["output.logits", "output.hidden.0", "output.hidden.1"]


def test_a_namedtuple_is_walked_by_its_field_names() -> None:
    assert paths(Pair(torch.ones(1), None)) == ["output.left"]


def test_a_structure_sequence_of_torch_is_walked_by_its_names_in_order() -> None:
    assert paths(torch.max(torch.randn(3, 4), 1)) == ["output.values", "output.indices"]


def test_a_packed_sequence_is_walked() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    assert paths(packed)[:2] == ["output.data", "output.batch_sizes"]


def test_a_key_that_is_not_a_name_is_quoted() -> None:
    assert paths({"a.b": torch.ones(1), 3: torch.ones(1)}) == ['output."a.b"', "output.3"]


def test_keys_that_differ_only_in_type_have_distinct_names() -> None:
    value = {0: torch.zeros(1), "0": torch.ones(1), (1, 2): torch.ones(2)}
    assert paths(value) == ['output."0 (int)"', "output.0", 'output."(1, 2)"']
    for path, tensor in leaves(value, "output"):
        ((again, found),) = follow(value, ValuePath.parse(path).keys, "output")
        assert found is tensor
        assert again == path
    assert paths({0: torch.ones(1), "1": torch.ones(1)}) == ["output.0", "output.1"]


class Slots:
    __slots__ = ("empty", "t")

    def __init__(self, t: torch.Tensor) -> None:
        self.t = t


class Attributes:
    def __init__(self, t: torch.Tensor) -> None:
        self.t, self.inner = t, [Slots(t + 1)]

    @property
    def computed(self) -> torch.Tensor:
        raise AssertionError("a property is code of the program's")


def test_attributes_of_any_object_are_reached_by_name_and_properties_are_not_called() -> None:
    value = Attributes(torch.ones(2))
    assert follow(value, ("t",), "output") == [("output.t", value.t)]
    assert follow(value, ("inner", "0", "t"), "output") == [("output.inner.0.t", value.inner[0].t)]
    for key in ("computed", "missing", "__class__", "__init__"):
        with pytest.raises(LeafNotFound, match="its attributes with tensors are `t`"):
            follow(value, (key,), "output")
    with pytest.raises(LeafNotFound):
        follow(value.inner[0], ("empty",), "output")
    assert paths(value) == []


def test_members_of_deques_and_namespaces_and_registered_classes_are_leaves() -> None:
    pytree.register_pytree_node(Slots, lambda one: ([one.t], None), lambda members, _: Slots(*members))
    value = SimpleNamespace(a=collections.deque([torch.ones(1), Slots(torch.ones(2))]), b=None)
    assert paths(value) == ["output.a.0", "output.a.1.0"]
    assert [path for path, _ in follow(value, ("a", "1", "t"), "output")] == ["output.a.1.t"]


def test_an_object_without_visible_members_is_reported_as_opaque() -> None:
    class Cache:
        pass

    assert list(opaque({"cache": Cache(), "x": torch.ones(1), "n": None}, "output")) == [
        ("output.cache", "test_an_object_without_visible_members_is_reported_as_opaque.<locals>.Cache")
    ]
    assert children(Cache()) is None


def test_a_star_selects_every_member() -> None:
    found = follow({"h": (torch.zeros(1), torch.ones(1))}, ("h", "*"), "output")
    assert [path for path, _ in found] == ["output.h.0", "output.h.1"]


def test_a_missing_member_is_refused_with_the_existing_ones() -> None:
    with pytest.raises(LeafNotFound, match="`output` has no member `logit`; it has logits, hidden, note"):
        follow(Output(torch.ones(1), ()), ("logit",), "output")
    with pytest.raises(LeafNotFound, match="`output` is a Tensor, which has no member `0`"):
        follow(torch.ones(1), ("0",), "output")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(3, 1).expand(3, 5),
        torch.randn(4, dtype=torch.complex64).conj(),
        torch._neg_view(torch.randn(4)),
        torch.zeros(0, 3),
        torch.tensor(2.5),
        torch.randn(5)[::2],
    ],
    ids=["transposed", "channels-last", "expanded", "conjugate", "negated", "empty", "scalar", "strided"],
)
def test_the_dense_tensor_holds_the_same_values_in_row_major_order(tensor: torch.Tensor) -> None:
    dense = local(tensor)
    assert dense.is_contiguous()
    assert not dense.is_conj()
    assert not dense.is_neg()
    assert dense.shape == tensor.shape
    assert torch.equal(dense, tensor.clone())


def test_a_tensor_whose_storage_was_freed_is_refused_before_its_memory_is_touched() -> None:
    tensor = torch.randn(4)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(NotCapturable, match="no memory"):
        local(tensor)


def test_a_sparse_a_meta_and_a_wrapped_tensor_are_refused_with_a_reason() -> None:
    with pytest.raises(NotCapturable, match="sparse"):
        local(torch.eye(2).to_sparse())
    with pytest.raises(NotCapturable) as meta:
        local(torch.empty(2, device="meta"))
    assert meta.value.reason == "no data"
    reasons = []

    def look(x: torch.Tensor) -> torch.Tensor:
        try:
            local(x)
        except NotCapturable as error:
            reasons.append(error.reason)
        return x

    torch.vmap(look)(torch.ones(2, 2))
    assert reasons == ["functorch"]
