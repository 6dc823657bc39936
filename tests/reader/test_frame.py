from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.clock import SeriesKey
from probes.errors import UsageError
from probes.reader.series_set import SeriesSet
from tests.reader.recorded import Recording

PACKAGES = ("pandas", "polars", "pyarrow")
FAR = (1 << 62) + 1  # no float64 is equal to it


def key(target: str) -> SeriesKey:
    return SeriesKey("acts", target, "output", "train")


def column(found: Any, name: str) -> list[Any]:
    return found[name].to_pylist() if hasattr(found[name], "to_pylist") else found[name].to_list()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_frame_has_the_rows_of_the_exported_table(package: Any, tmp_path: Path) -> None:
    pytest.importorskip(package)
    arrow = pytest.importorskip("pyarrow")
    recording = Recording(tmp_path).take(np.arange(6, dtype="<i4").reshape(2, 3), key=key("a"), dims=("step", "step_1"))
    recording.take(np.arange(3.0), key=key("b"), dims=("stat",), coords={"stat": ["min", "max", "l2"]})
    recording.take(np.array([7], "<f2"), key=key("a"), step=1).take(np.array(True), key=key("c")).sealed()
    every = probes.open(tmp_path).match("**")
    found, exported = every.frame(package), every.arrow().read_all()
    assert isinstance(exported, arrow.Table)
    names = list(exported.column_names)
    assert names == list(getattr(found, "column_names", found.columns))
    assert {"step_1", "step_1_1"} <= {*names}
    for name in names:
        theirs = [None if one != one else one for one in column(found, name)]  # pandas has NaN for a missing text
        assert theirs == exported[name].to_pylist()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_series_without_elements_has_a_frame(package: Any, tmp_path: Path) -> None:
    pytest.importorskip(package)
    Recording(tmp_path).take(np.zeros((0, 3), "<f4")).take(np.zeros((0, 3), "<f4"), step=1).sealed()
    assert column(probes.open(tmp_path).frame("acts", package), "value") == []
    assert len(column(SeriesSet([]).frame(package), "epoch")) == 0


def test_an_integer_that_no_float_is_equal_to_does_not_join_floats(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.array([FAR]), key=key("a")).take(np.zeros(1), key=key("b")).sealed()
    run = probes.open(tmp_path)
    assert column(run.frame("acts/a"), "value") == [FAR]
    with pytest.raises(UsageError, match=str(FAR)):
        run.frame()


def test_a_frame_of_arrow_refuses_complex_numbers_which_pandas_takes(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    Recording(tmp_path).take(np.array([1.0, 2.0], "<f4"), dtype="complex64", shape=()).sealed()
    run = probes.open(tmp_path)
    assert column(run.frame("acts", "pandas"), "value") == [1 + 2j]
    for package in ("polars", "pyarrow"):
        pytest.importorskip(package)
        with pytest.raises(UsageError, match="a table has no complex numbers"):
            run.frame("acts", package)  # type: ignore[arg-type]  # the name of a package
