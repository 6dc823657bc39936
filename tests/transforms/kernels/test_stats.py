"""The kernel of `stats` against numpy in float64; tests/transforms/test_accuracy.py has the bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from probes.transforms.kernels.stats import CHUNK, ROW, on_device, stats
from tests.conftest import SEED
from tests.transforms.made import same_bits

BOUND = 2.0**-17  # of the float32 path, see the kernel
BOUND_OF_DOUBLES = 2.0**-39  # 2**-40 of ours, and less than as much of numpy's, whose pairwise sums round a few dozen times
MANY = 2 * CHUNK + 3 * ROW + 17
SEEDED = torch.Generator().manual_seed(SEED + 7)
NORMAL = torch.randn(MANY, generator=SEEDED)

CASES = {
    "normal": NORMAL,
    "relu": NORMAL.relu(),
    "shifted": NORMAL + 3,
    "far from zero": NORMAL + 1e6,
    "nearly constant": 1 + NORMAL * 1e-6,
    "constant": torch.full((MANY,), 0.1),
    "two values": NORMAL.sign() * 2.6616013,
    "sparse": (NORMAL > 2).float() * 3.569847,
    "tiny": NORMAL * 1e-25,
    "tiny steps": 1e-18 + NORMAL * 1e-24,
    "huge": NORMAL * 1e30,
    "log normal": (3 * NORMAL).exp(),
    "drifting": torch.linspace(-5, 50, MANY) + NORMAL,
    "one chunk of zeros": torch.cat((torch.zeros(CHUNK), NORMAL[CHUNK:])),
    "half": NORMAL.half(),
    "bfloat16 off zero": (NORMAL + 7).bfloat16(),
    "double": NORMAL.double() * 1e100,
    "integers": (NORMAL * 1000).long(),
    "some not finite": NORMAL.masked_fill(NORMAL > 3, torch.nan).masked_fill(NORMAL < -3, -torch.inf),
    "all nan": torch.full((CHUNK + 1,), torch.nan),
}


def plain(value: Tensor) -> np.ndarray:
    """The ten numbers by numpy."""
    every = value.reshape(-1).double().numpy()
    some = every[np.isfinite(every)]
    nothing = [np.nan] * 4
    moments = [some.mean(), some.std(), some.min(), some.max()] if len(some) else nothing
    special = [(every == 0).sum(), np.isnan(every).sum(), (every == np.inf).sum(), (every == -np.inf).sum()]
    return np.array([len(every), *moments, np.sqrt((some * some).sum()), *special])


def close(found: Tensor, expected: np.ndarray, tolerance: float) -> None:
    scale = np.abs(expected)
    scale[1] = max(scale[1], scale[2])  # a mean near zero is as exact as the spread allows
    np.testing.assert_array_equal(np.isnan(found.numpy()), np.isnan(expected))
    assert (np.nan_to_num(np.abs(found.numpy() - expected)) <= np.nan_to_num(tolerance * scale)).all(), (found, expected)
    np.testing.assert_array_equal(found.numpy()[[0, 3, 4, 6, 7, 8, 9]], expected[[0, 3, 4, 6, 7, 8, 9]])


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_within_the_bound_of_float64(name: str) -> None:
    close(stats(CASES[name]), plain(CASES[name]), BOUND)


@pytest.mark.parametrize("name", CASES)
def test_the_formulation_for_other_devices_agrees(name: str) -> None:
    value = CASES[name]
    if name == "nearly constant":
        value = value.double()
    close(on_device(value), plain(value), BOUND_OF_DOUBLES)


@pytest.mark.parametrize("name", ["normal", "shifted", "half", "integers", "some not finite"])
def test_the_number_of_threads_does_not_matter(name: str) -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(stats(CASES[name]))
    finally:
        torch.set_num_threads(before)
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


SPECIAL = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf")])
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60)
@given(st.lists(st.one_of(SINGLE, SPECIAL), max_size=40), st.integers(0, 3), st.sampled_from(["float32", "float64", "bfloat16", "float16"]))
def test_any_mixture_of_elements_has_the_numbers_of_numpy(elements: list[float], doublings: int, dtype: str) -> None:
    value = torch.tensor(elements, dtype=torch.float64).repeat(17**doublings).to(getattr(torch, dtype))
    close(stats(value), plain(value), BOUND)


def test_the_layout_in_memory_does_not_matter() -> None:
    value = NORMAL[: 600 * 400].view(600, 400)
    assert same_bits(stats(value.t()), stats(value.t().contiguous()))
    close(stats(value[:, ::3]), plain(value[:, ::3]), BOUND)
    negative = torch.complex(value, value).conj().imag
    assert negative.is_neg()
    close(stats(negative), plain(-value), BOUND)


def test_a_tensor_without_memory_is_refused() -> None:
    value = torch.randn(4096)
    value.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="no memory"):
        stats(value)
