from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from probes.digest import BLOCK_BYTES, blocks, shape_row
from probes.proof.series_check import block_ends, shape_table


def part(*shapes: tuple[int, ...]) -> Any:
    """As much of a series as its shapes are."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [[*shape, *[-1] * (rank - len(shape))] for shape in shapes]
    return SimpleNamespace(shapes=np.array(padded, np.int64).reshape(len(shapes), rank), dtype="float32", clocks=np.zeros(len(shapes)))


@pytest.mark.parametrize("elements", [0, 1, 3, 5000, BLOCK_BYTES // 4 - 1, BLOCK_BYTES // 4, BLOCK_BYTES // 4 + 1])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 100])
def test_captures_of_one_size_are_cut_as_any_are(elements: int, count: int) -> None:
    assert block_ends(part(*[(elements,)] * count)) == blocks([4 * elements] * count)


def test_captures_of_several_sizes_are_cut_by_the_rule() -> None:
    assert block_ends(part((5000,), (20_000,), (1,), (1,))) == blocks([20_000, 80_000, 4, 4])


@pytest.mark.parametrize("shapes", [[], [()], [(2, 3)] * 3, [(2, 3), (1, 3), (2, 3)], [(2,), (2, 1), ()]])
def test_the_table_of_shapes_has_a_row_for_each_capture(shapes: list[tuple[int, ...]]) -> None:
    assert shape_table(part(*shapes)) == b"".join(map(shape_row, shapes))
