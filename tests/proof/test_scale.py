"""Time and memory of `verify` and `diff` on runs of a realistic size."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.pages import module

MIB = 1 << 20
SIZES = (4 << 10, MIB)


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return module("benchmarks/verify.py")


@pytest.mark.torture
@pytest.mark.parametrize("size", SIZES)
def test_verify_keeps_up_with_reading_and_hashing_once(benchmark: ModuleType, size: int, tmp_path: Path) -> None:
    content, whole = benchmark.speed(tmp_path, 256 * MIB, size)
    assert content >= 0.7
    assert whole >= 0.5


@pytest.mark.torture
def test_two_runs_of_a_gibibyte_are_verified_and_compared_in_300_mb(benchmark: ModuleType, tmp_path: Path) -> None:
    needed = benchmark.memory(tmp_path, 1024 * MIB)
    assert max(needed.values()) < 300
