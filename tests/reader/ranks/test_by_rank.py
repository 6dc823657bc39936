"""Ranks along an axis of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import probes
from probes.errors import RaggedSeries
from tests.proof.runs import write_run


def test_ranks_are_the_first_axis_of_arrays(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    for rank in (0, 1):
        write_run(tmp_path / "r", rank=rank, change=lambda one, epoch, rank=rank: one._replace(bits=one.bits + rank))  # type: ignore[misc]  # of a default argument
    series = next(one for one in probes.open(tmp_path / "r").series if one.dtype == "float32" and len(one.shapes) == 1)
    found = series.by_rank()
    assert list(found) == [0, 1]
    assert found.numpy().shape == (2, *series.sel(rank=0).numpy().shape)
    for rank in (0, 1):
        assert np.array_equal(found.numpy()[rank], series.sel(rank=rank).numpy(), equal_nan=True)
    array = found.xarray()
    assert array.dims[:2] == ("rank", "step")
    assert array.coords["rank"].values.tolist() == [0, 1]
    assert np.array_equal(array.values, found.numpy(), equal_nan=True)


def test_ranks_with_other_clocks_are_read_one_by_one(tmp_path: Path) -> None:
    write_run(tmp_path / "r", rank=0)
    write_run(tmp_path / "r", rank=1, epochs=1)
    series = next(one for one in probes.open(tmp_path / "r").series if one.dtype == "float32")
    with pytest.raises(RaggedSeries, match="other clocks on rank 1 than on rank 0"):
        series.by_rank().numpy()
