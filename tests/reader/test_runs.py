from pathlib import Path

import numpy as np
import pytest

import probes
from tests.reader.recorded import counted


def test_many_runs_are_read_as_one(tmp_path: Path) -> None:
    pytest.importorskip("xarray", reason="xarray is not installed")
    counted(tmp_path / "sweep" / "a", 2)
    counted(tmp_path / "sweep" / "b", 1)
    (tmp_path / "sweep" / "a" / "run.json").write_text('{"tags": {"lr": "0.1"}}')
    runs = probes.open_all(tmp_path / "sweep")
    assert list(runs) == ["a", "b"]
    array = runs["acts", "fc1"].xarray()
    assert array.sizes == {"run": 2, "step": 8, "dim_0": 2, "dim_1": 3}
    assert array.sel(run="a")[:, 0, 0].values.tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert np.isnan(array.sel(run="b")[4:]).all()
    assert array["lr"].values.tolist() == ["0.1", ""]
    assert runs.sel(epoch=0)["acts", "fc1"].xarray().dtype == np.float32
