"""The sum of a tensor's elements by their places, against a slow one that is written from the text of its definition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3

from probes.provenance.element_sum import element_sum, part_places, whole_places
from probes.run_directory.manifest import MODULUS, sum_text
from probes.tensors import DTYPE_NAMES

NAMES = sorted(name for name in DTYPE_NAMES.values() if "int4" not in name and "bits" not in name and not name.startswith(("q", "uint1_")))


def by_definition(content: np.ndarray[Any, Any], shape: tuple[int, ...]) -> list[int]:
    """The sum as `schemas/weights.v1.md` defines it, of words in C order."""
    axes = [*shape[:-1], content.size // int(np.prod(shape[:-1]))]
    keys = [blake3(f"probes weights.v1 axis {axis}".encode()).digest(length=16 * size) for axis, size in enumerate(axes)]
    found = [0, 0]
    for place, word in zip(product(*map(range, axes)), content.tolist(), strict=True):
        for lane in (0, 1):
            factor = word
            for axis, at in enumerate(place):
                factor *= int.from_bytes(keys[axis][16 * at + 8 * lane : 16 * at + 8 * lane + 8], "little") >> 3
            found[lane] = (found[lane] + factor) % MODULUS
    return found


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", NAMES)
def test_the_sum_of_any_dtype_is_that_of_its_definition(name: str) -> None:
    dtype = getattr(torch, name)
    size = torch.empty(0, dtype=dtype).element_size()
    content = torch.randint(0, 2 if name == "bool" else 256, (2 * 3 * size,), dtype=torch.uint8)
    words = content if size == 1 else content.view(torch.int16)
    assert element_sum(content.view(dtype).reshape(2, 3), whole_places((2, 3))) == by_definition(words.numpy(), (2, 3))


@pytest.mark.parametrize("shape", [(), (1,), (700,), (1, 1, 5), (3, 300), (2, 3, 4, 2), (40, 1)])
def test_the_sum_of_any_shape_is_that_of_its_definition(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape)
    words = tensor.reshape(-1).view(torch.int16).numpy()
    assert element_sum(tensor, whole_places(shape)) == by_definition(words, shape or (1,))


MESHES: list[tuple[tuple[int, ...], tuple[str, ...]]] = [
    ((2,), ("S(0)",)), ((4,), ("S(0)",)), ((3,), ("S(1)",)), ((7,), ("S(0)",)),
    ((2, 2), ("S(0)", "S(1)")), ((2, 3), ("S(1)", "S(1)")), ((2, 2), ("R", "S(1)")), ((2, 2), ("S(0, 2)", "S(0)")),
]  # fmt: skip


@pytest.mark.parametrize(("mesh", "placements"), MESHES)
@pytest.mark.parametrize("shape", [(8, 6), (5, 3), (2, 4)])
def test_the_sums_of_the_parts_make_that_of_the_whole(mesh: tuple[int, ...], placements: tuple[str, ...], shape: tuple[int, int]) -> None:
    whole = torch.randn(shape, dtype=torch.float64)
    found, elements = [0, 0], 0
    for at in product(*map(range, mesh)):
        if any(one and placement == "R" for one, placement in zip(at, placements, strict=True)):
            continue
        places = part_places(placements, mesh, at, shape)
        assert places is not None
        part = whole[np.ix_(*places)].contiguous()
        elements += part.numel()
        found = [(one + more) % MODULUS for one, more in zip(found, element_sum(part, places), strict=True)]
    assert elements == whole.numel()
    assert found == element_sum(whole, whole_places(shape))


def test_one_flipped_bit_or_two_elements_in_each_others_place_change_the_sum() -> None:
    tensor = torch.randn(6, 50, dtype=torch.float64)
    before = element_sum(tensor, whole_places(tensor.shape))
    for bit in range(64):
        other = tensor.clone()
        other.view(torch.int64)[3, 7] ^= torch.tensor(1).bitwise_left_shift(bit)
        assert element_sum(other, whole_places(tensor.shape))[0] != before[0]
    assert element_sum(-tensor, whole_places(tensor.shape)) != before
    assert element_sum(tensor.flip(0), whole_places(tensor.shape)) != before
    assert element_sum(tensor.reshape(50, 6), whole_places((50, 6))) != before


def test_partial_values_are_not_parts() -> None:
    assert part_places(["P(sum)"], [2], [0], [4]) is None


def test_the_text_of_a_sum_has_sixteen_digits_for_each_lane() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert sum_text(element_sum(tensor, whole_places((2, 3)))) == "060229197b78e8db02e602aa43b07ad8"
