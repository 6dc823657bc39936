from __future__ import annotations

from math import nan
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.errors import RaggedSeries, UsageError
from probes.reader.series import Series
from tests.reader.recorded import Recording


def series(folder: Path, *captures: np.ndarray) -> Series:
    recording = Recording(folder)
    for step, capture in enumerate(captures):
        recording.take(capture, step=step)
    recording.sealed()
    return probes.open(folder)["acts", "fc1"]


@pytest.mark.parametrize("shapes", [[(2, 3), (4, 1)], [(2, 3), (1, 3)], [(0, 3), (2, 2)], [(2, 2), (2, 2)]])
def test_captures_of_several_sizes_are_padded_to_the_largest(shapes: list[tuple[int, int]], tmp_path: Path) -> None:
    captures = [np.arange(1, 1 + a * b, dtype="<f4").reshape(a, b) for a, b in shapes]
    found = series(tmp_path, *captures)
    size = [max(sizes) for sizes in zip(*shapes, strict=True)]
    expected = np.full((2, *size), nan, "<f4")
    for row, capture in zip(expected, captures, strict=True):
        row[: capture.shape[0], : capture.shape[1]] = capture
    assert np.array_equal(found.numpy(pad=nan), expected, equal_nan=True)
    assert np.array_equal(found.masked().mask, np.isnan(expected))
    assert found.masked().sum() == sum(capture.sum() for capture in captures)


def test_a_number_that_the_dtype_does_not_have_cannot_pad(tmp_path: Path) -> None:
    found = series(tmp_path, np.ones((1, 2), "u1"), np.ones((2, 1), "u1"))
    assert found.numpy(pad=255).tolist() == [[[1, 1], [255, 255]], [[1, 255], [1, 255]]]
    for pad in (nan, 256, -1, 0.5):
        with pytest.raises(UsageError, match="is not a number of the dtype `uint8`"):
            found.numpy(pad=pad)


def test_captures_with_different_numbers_of_axes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RaggedSeries, match="differ in their number of axes"):
        series(tmp_path, np.ones((1, 2), "<f4"), np.ones(2, "<f4")).numpy(pad=0)


def test_scalars_need_no_padding(tmp_path: Path) -> None:
    assert series(tmp_path, np.array(1.5), np.array(2.5)).numpy(pad=0).tolist() == [1.5, 2.5]


@pytest.mark.parametrize("dtype", ["<f4", "<i8", "<c8", "?"])
def test_an_integer_beyond_all_floats_is_refused(dtype: str, tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros(2, dtype), **({"dtype": "complex64", "shape": (1,)} if dtype == "<c8" else {})).sealed()
    with pytest.raises(UsageError, match="is not a number of the dtype"):
        probes.open(tmp_path)["acts", "fc1"].numpy(pad=10**400)
