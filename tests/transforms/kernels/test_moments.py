from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from probes.transforms.kernels.moments import BLOCK, BOUND, Moments, block_sum, exponent_of, joined, of_doubles, times_power_of_2
from tests.conftest import SEED
from tests.rounding import U64, after


def test_two_runs_join_to_the_moments_of_both() -> None:
    values = np.array([3.0, -4.0, np.nan, 0.0, np.inf, 1e6, -np.inf])
    whole, parts = of_doubles(values), joined([of_doubles(values[:2]), of_doubles(values[2:5]), of_doubles(values[5:])])
    assert whole._replace(mean=0, spread=0, squares=0, tail=0) == parts._replace(mean=0, spread=0, squares=0, tail=0)
    assert abs(parts.mean - whole.mean) <= after(4 * 3, U64) * 1e6  # three merges and the whole, of three roundings each, of at most 1e6
    assert abs(parts.std() - whole.std()) <= after(4 * 6, U64) * 1e6


def test_empty_parts_join_to_an_empty_whole() -> None:
    assert joined([]) == Moments() == Moments().joined(Moments())
    assert math.isnan(Moments().std())


def test_values_that_differ_in_their_last_digit_have_their_standard_deviation() -> None:
    assert of_doubles(np.array([1.0, 1.0 + 2**-52])).std() == 2**-53
    assert of_doubles(np.full(3, 0.1)).std() == 0


@pytest.mark.parametrize("largest", [1e300, 1e-300, sys.float_info.max, 5e-324])
def test_numbers_out_of_the_range_of_squares_are_scaled(largest: float) -> None:
    exponent = exponent_of(largest)
    found = of_doubles(np.array([largest, -largest]), exponent)
    assert found.std(exponent) == largest


def test_numbers_within_range_are_not_scaled() -> None:
    assert [exponent_of(largest) for largest in (0.0, 1.0, 1e100)] == [0, 0, 0]
    assert times_power_of_2(-1.0, 5000) == -math.inf


def test_the_module_does_not_import_torch() -> None:
    import subprocess

    code = "import sys, probes.transforms.kernels.moments; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK, BLOCK * BLOCK + 7])
def test_columns_are_summed_within_the_bound(count: int) -> None:
    values = np.random.default_rng(SEED).normal(size=(count, 2)) * 1e8
    for column, found in zip(values.T, block_sum(values), strict=True):
        assert abs(found - math.fsum(column)) <= BOUND * math.fsum(abs(column))
