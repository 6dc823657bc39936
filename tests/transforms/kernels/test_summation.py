from __future__ import annotations

import pytest
import torch
from torch import Tensor

from probes.transforms.kernels.summation import (
    DeviceColumns,
    as_rows,
    columns_of,
    device_scaled,
    mean,
    root_of_squares,
    same,
    square,
    standard_deviation,
    total,
)
from tests.conftest import SEED
from tests.rounding import U64, after, within
from tests.transforms.made import same_bits


def test_reduced_axes_become_rows_and_the_others_columns() -> None:
    value = torch.arange(24.0).view(2, 3, 4)
    assert as_rows(value, (0, 2)).T.tolist() == value.permute(1, 0, 2).reshape(3, 8).tolist()
    assert as_rows(value, ()).shape == (1, 24)
    assert as_rows(torch.tensor(3.0), ()).tolist() == [[3.0]]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 5), (5000, 3), (7, 70_000), (300_000, 1)], ids=str)
def test_both_formulations_agree_with_torch_in_float64(shape: tuple[int, int]) -> None:
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))
    share = 2.0**-41 + after(shape[0] + 1, U64)  # of ours, and of torch's in any order
    for columns in (columns_of(rows), DeviceColumns(rows)):
        squares = rows.double().square().sum(0)
        assert within(columns.sum(same), rows.double().sum(0), share * rows.double().abs().sum(0))
        assert within(columns.sum(square), squares, share * squares)


def test_columns_of_different_ranges_are_scaled_separately() -> None:
    rows = torch.tensor([[3e300, 3e-300, 3.0, 5e-324], [4e300, 4e-300, 4.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([5e300, 5e-300, 5.0, 5e-324], dtype=torch.float64)
    bound = after(8, U64) * expected  # two elements rounded from decimals, two squares, a sum, a root, a scale, and the expected one
    assert within(root_of_squares(rows), expected, bound)
    columns = DeviceColumns(rows)
    assert within(device_scaled(columns.sum(square).sqrt(), columns.exponent), expected, bound)


def test_a_partial_sum_beyond_the_range_does_not_overflow() -> None:
    assert total(torch.tensor([[1.5e308], [1.5e308], [-1.5e308]], dtype=torch.float64)).item() == 1.5e308
    assert mean(torch.full((4, 1), 1.7e308, dtype=torch.float64)).item() == 1.7e308


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0, torch.inf], "inf"), ([torch.inf, -torch.inf], "nan"), ([1.0, torch.nan], "nan"), ([-torch.inf, 2.0], "-inf")],
)
def test_sums_of_numbers_that_are_not_finite_follow_ieee(values: list[float], expected: str) -> None:
    rows = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
    assert str(total(rows).item()) == expected
    assert str(DeviceColumns(rows).sum(same).item()) == expected


@pytest.mark.parametrize("kernel", [total, mean, root_of_squares, standard_deviation])
def test_the_number_of_threads_does_not_matter(kernel: object) -> None:
    assert callable(kernel)
    rows = torch.randn(200_000, 3, generator=torch.Generator().manual_seed(SEED))
    before, found = torch.get_num_threads(), list[Tensor]()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(kernel(rows))
    finally:
        torch.set_num_threads(before)
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])
