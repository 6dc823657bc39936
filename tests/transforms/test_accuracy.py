"""Every number of a transform is within the bound that its docs state."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from tests.conftest import SEED
from tests.pages import script
from tests.transforms.accuracy import Row, measured, measured_of_many, rows
from tests.transforms.hard_inputs import Exact, Tiled
from tests.transforms.made import applied, made


def beyond(found: list[Row]) -> list[str]:
    return [f"{row.transform} {row.number}: {float(row.share):.3g} of its bound" for row in found if row.share > 1]


def test_numbers_are_within_their_bounds_on_hard_inputs() -> None:
    found = measured(seed=SEED + 1, repeats=1)
    assert all(row.inputs for row in found)
    assert not beyond(found)


@pytest.mark.torture
def test_numbers_are_within_their_bounds_on_thousands_of_inputs() -> None:
    assert not beyond(measured(SEED + 2, repeats=25))


@pytest.mark.torture
def test_numbers_of_50_million_elements_are_within_their_bounds() -> None:
    found = measured_of_many(SEED + 4, 50_000_000)
    assert len(found) >= 12
    assert not beyond(found)


def test_numbers_of_a_tile_repeated_are_within_their_bounds() -> None:
    assert not beyond(measured_of_many(SEED + 5, 100_000))


def test_the_spread_of_a_million_doubles_that_differ_in_their_last_place_is_within_its_bound() -> None:
    tile = 1.3 * (1 + torch.finfo(torch.float64).eps * torch.arange(10_000, dtype=torch.float64).remainder(2))
    tile = tile[torch.randperm(10_000, generator=torch.Generator().manual_seed(SEED))]
    exact = Tiled(tile, 100)
    found = applied(made("stats"), tile.repeat(100))
    assert abs(Fraction(float(found[2])) / exact.std - 1) <= Fraction(2) ** -40


def test_the_page_has_every_number_and_its_bound() -> None:
    accuracy = script("accuracy")
    assert accuracy.outline(accuracy.PAGE.read_text(encoding="utf-8")) == accuracy.expected(), "run: python docs/accuracy.py"


@pytest.mark.parametrize("repeats", [64, 25_000, 100_000])
def test_the_standard_deviation_of_three_zeros_and_30517_repeated_is_within_its_bound(repeats: int) -> None:
    value = torch.tensor([0.0, 0.0, 0.0, 30517.0]).repeat(repeats)
    exact = Exact(value[:4])
    found = applied(made("stats"), value)
    assert abs(Fraction(float(found[2])) / exact.std - 1) <= Fraction(2) ** -17
    assert abs(Fraction(float(found[1])) - exact.mean) <= exact.std * Fraction(2) ** -18


def test_numbers_of_several_chunks_are_within_their_bounds() -> None:
    value = torch.linspace(-5, 50, 300_001) + torch.randn(300_001, generator=torch.Generator().manual_seed(SEED + 3))
    exact = Exact(value)
    for row in rows():
        if "float32" in row.dtypes and row.transform in ("stats", "norm", "reduce", "accumulate"):
            row.take(value, exact)
            assert not beyond([row])


def test_exact_arithmetic_agrees_with_python() -> None:
    exact = Exact(torch.tensor([3.0, -4.0]))
    assert (exact.sum, exact.magnitudes, exact.squares, exact.l2, exact.mean, exact.variance) == (
        -1,
        7,
        25,
        5,
        Fraction(-1, 2),
        Fraction(49, 4),
    )
