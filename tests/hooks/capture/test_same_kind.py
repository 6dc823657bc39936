"""A recorder skips its own checks for a tensor of the kind of the last one: both ways of finding out agree where it matters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probes.hooks.capture import same_kind


class Own(Tensor):
    """A subclass of the program."""


WRAPPED = ("subclass", "meta", "sparse", "compressed", "nested", "quantised")


def tensors() -> dict[str, Any]:
    """Tensors of which no two are of one kind, each with the same numbers of elements where that is possible."""
    plain = torch.arange(12.0).reshape(3, 4)
    return {
        "plain": plain,
        "another dtype": plain.double(),
        "another shape": plain.reshape(4, 3),
        "fewer dimensions": plain.reshape(12),
        "transposed": plain.reshape(4, 3).t(),
        "every second": torch.arange(24.0).reshape(3, 8)[:, ::2],
        "negated": plain._neg_view(),
        "complex": torch.complex(plain, plain),
        "conjugated": torch.complex(plain, plain).conj(),
        "parameter": nn.Parameter(plain.clone()),
        "subclass": plain.as_subclass(Own),
        "meta": torch.empty(3, 4, device="meta"),
        "sparse": plain.to_sparse(),
        "compressed": plain.to_sparse_csr(),
        "nested": torch.nested.nested_tensor([plain, plain[:2]], layout=torch.jagged),
        "quantised": torch.quantize_per_tensor(plain, 0.1, 0, torch.quint8),
        "empty": torch.empty(0, 4),
        "one number": torch.tensor(3.0),
        "integers": torch.arange(12).reshape(3, 4),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")  # of a tensor that is one of the kinds here
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz:DeprecationWarning")
@pytest.mark.parametrize("make", [same_kind.same_kind_as, same_kind._one_by_one], ids=["in use", "one by one"])
def test_only_a_tensor_of_the_same_kind_passes(make: Callable[[Tensor], same_kind.Check]) -> None:
    stored = [name for name in tensors() if name not in (*WRAPPED, "negated", "conjugated")]
    for one, other in product(stored, tensors()):
        assert make(tensors()[one])(tensors()[other]) is (one == other), (one, other)


def test_the_guards_of_this_torch_are_in_use() -> None:
    assert same_kind.same_kind_as is same_kind._by_guard


def test_another_meaning_of_the_guards_in_a_later_torch_is_noticed() -> None:
    def fails(_: Tensor) -> same_kind.Check:
        raise TypeError("the constructor takes other arguments")

    assert same_kind._distinguishes(same_kind._one_by_one)
    assert not same_kind._distinguishes(lambda _: lambda other: True)
    assert not same_kind._distinguishes(lambda _: lambda other: False)
    assert not same_kind._distinguishes(fails)


def test_a_tensor_inside_a_functorch_transform_is_of_another_kind() -> None:
    x = torch.randn(3, 4)
    found: list[bool] = []
    check = same_kind.same_kind_as(torch.randn(4))
    torch.func.vmap(lambda row: (found.append(check(row)), row)[1])(x)
    torch.func.grad(lambda value: (found.append(check(value)), value.sum())[1])(x[0])
    assert found == [False, False]


def test_nothing_but_a_tensor_passes() -> None:
    assert not any(map(same_kind.same_kind_as(torch.zeros(2)), (None, 3, [1.0, 2.0], torch.nn.Identity())))
    assert not same_kind.never(torch.zeros(2))


def test_the_check_keeps_no_tensor() -> None:
    import weakref

    tensor = torch.zeros(2)
    held = weakref.ref(tensor)
    check = same_kind.same_kind_as(tensor)
    del tensor
    assert held() is None
    assert check(torch.ones(2))
