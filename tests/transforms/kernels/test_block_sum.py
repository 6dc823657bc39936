from __future__ import annotations

import math

import numpy as np
import pytest

from probes.transforms.kernels.block_sum import BLOCK, BOUND, block_sum
from tests.conftest import SEED


@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK, BLOCK * BLOCK + 7])
def test_columns_are_summed_within_the_bound(count: int) -> None:
    values = np.random.default_rng(SEED).normal(size=(count, 2)) * 1e8
    for column, found in zip(values.T, block_sum(values), strict=True):
        assert abs(found - math.fsum(column)) <= BOUND * math.fsum(abs(column))
