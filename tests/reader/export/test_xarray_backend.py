"""`xarray.open_dataset(..., engine="probes")` against the arrays of the reader."""

from __future__ import annotations

import pickle
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.clock import SeriesKey
from probes.errors import AmbiguousSeries, RaggedSeries, SeriesNotFound, UsageError
from probes.reader.series import Series
from tests.reader.recorded import Recording

xarray = pytest.importorskip("xarray", reason="xarray is not installed; the extra `xarray` brings it")

from probes.reader.export.xarray_backend import ProbesBackend  # noqa: E402  # it imports xarray

ENTRY_POINT = {"probes": "probes.reader.export.xarray_backend:ProbesBackend"}


def opened(path: Path, **options: Any) -> Any:
    return xarray.open_dataset(path, engine=ProbesBackend, **options)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for epoch in range(2):
        recording = Recording(tmp_path / "run", epoch)
        for step in range(4):
            for target, size in (("fc1", 3), ("fc2", 5)):
                value = random.standard_normal((2, size)).astype("<f4")
                recording.take(value, key=SeriesKey("acts", target, "output", "train"), step=step, dims=("batch", "unit"))
            recording.take(
                random.standard_normal(2), key=SeriesKey("s", "", "output", "train"), step=step, dims=("stat",), coords={"stat": ["a", "b"]}
            )
            recording.take(np.zeros((1 + step, 2), "<f4"), key=SeriesKey("ragged", "", "output", "train"), step=step)
        recording.sealed()
    return tmp_path / "run"


def test_a_phase_and_a_group_together_are_an_error(run: Path) -> None:
    with pytest.raises(UsageError, match='a group names its phase: group="PROBE/TARGET:LEAF@eval"'):
        opened(run, group="acts/fc1:output", phase="eval")
    assert set(opened(run, probe="s")) == set(opened(run, probe="s", phase="train"))


def test_the_engine_is_declared_for_xarray() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["xarray.backends"] == ENTRY_POINT


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"step": 3},
        {"step": slice(1, None, 3), "unit": [2, 0]},
        {"step": [5, 0, 5], "batch": 1},
        {"step": slice(None, None, -1), "unit": slice(None, None, 2)},
        {"step": [], "unit": 0},
        {"step": 0, "batch": 0, "unit": 0},
    ],
    ids=str,
)
def test_every_kind_of_index_gives_the_numbers_of_the_reader(run: Path, index: dict[str, Any]) -> None:
    with opened(run, group="acts/fc1:output") as dataset:
        whole = xarray.DataArray(probes.open(run)["acts", "fc1"].numpy(), dims=("step", "batch", "unit"))
        np.testing.assert_array_equal(dataset["values"].isel(index).values, whole.isel(index).values)


def test_only_selected_captures_are_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[int]] = []
    plain = Series.take
    monkeypatch.setattr(Series, "take", lambda self, indices: taken.append(indices.tolist()) or plain(self, indices))
    with opened(run, group="acts/fc1:output") as dataset:
        assert taken == []
        dataset["values"].isel(step=[6, 1]).load()
    assert taken == [[1, 6]]


def test_a_probe_is_a_dataset_of_its_series(run: Path) -> None:
    with opened(run, probe="acts", epoch=1) as dataset:
        assert list(dataset) == ["fc1:output", "fc2:output"]
        assert dataset["fc2:output"].dims == ("step", "batch", "unit_1")
        assert dataset["epoch"].values.tolist() == [1] * 4
        np.testing.assert_array_equal(dataset["fc2:output"].values, probes.open(run).sel(epoch=1)["acts", "fc2"].numpy())
        assert dataset.attrs["probes.run_id"] == "r"
    with opened(run, probe="acts", drop_variables="fc1:output") as dataset:
        assert list(dataset) == ["fc2:output"]
    with opened(run, group="acts/fc1:output", drop_variables=["epoch", "rank", "absent"]) as dataset:
        assert not {"epoch", "rank"} & {*dataset.coords}
        assert {"step", "global_step"} < {*dataset.coords}


def test_labels_are_coordinates(run: Path) -> None:
    with opened(run, group="s/:output") as dataset:
        found = dataset["values"].sel(stat="b", step=2).values
        np.testing.assert_array_equal(found, probes.open(run).sel(step=2)["s", ""].numpy()[:, 1])


def test_a_dataset_can_be_sent_to_another_process(run: Path) -> None:
    with opened(run, group="acts/fc1:output") as dataset:
        again = pickle.loads(pickle.dumps(dataset))
        np.testing.assert_array_equal(again["values"].values, dataset["values"].values)


def test_dask_reads_chunk_by_chunk(run: Path) -> None:
    pytest.importorskip("dask", reason="dask is not installed; no extra brings it")
    with opened(run, group="acts/fc1:output", chunks={"step": 2}) as dataset:
        assert dataset["values"].chunks[0] == (2, 2, 2, 2)
        np.testing.assert_allclose(dataset["values"].mean("step").values, probes.open(run)["acts", "fc1"].numpy().mean(0), rtol=1e-6)


def test_a_group_that_is_not_a_dataset_is_refused_with_advice(run: Path) -> None:
    with pytest.raises(UsageError, match='name one series or a probe, such as group="acts/fc1:output"'):
        opened(run)
    with pytest.raises(RaggedSeries, match=r"differ in shape; `\.rows\(\)`"):
        opened(run, group="ragged/:output")
    with pytest.raises(SeriesNotFound):
        opened(run, group="acts/fc3:output")
    assert ProbesBackend().guess_can_open(run)
    assert not ProbesBackend().guess_can_open(run.parent / "nothing.nc")


def test_an_ambiguous_group_is_answered_with_what_one_writes_in_xarray(run: Path) -> None:
    Recording(run, 2).take(np.zeros(2, "<f4"), key=SeriesKey("acts", "fc1", "output", "eval")).take(
        np.zeros((2, 5), "<f2"), key=SeriesKey("acts", "fc2", "output", "train")
    ).sealed()
    with pytest.raises(AmbiguousSeries) as refused:
        opened(run, group="acts/fc1")
    assert sorted(str(refused.value).splitlines()[1:]) == ['  group="acts/fc1:output"', '  group="acts/fc1:output@eval"']
    assert ".sel(" not in str(refused.value)
    with pytest.raises(AmbiguousSeries) as refused:
        opened(run, group="acts/fc2:output")
    words = [line.split('"')[1] for line in str(refused.value).splitlines()[1:]]
    assert words == ["acts/fc2:output~float16", "acts/fc2:output~float32"]
    assert len(opened(run, group=words[1])["values"]) == 8


def test_dask_reads_chunks_of_several_runs_only_when_they_are_computed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask", reason="dask is not installed")
    runs = [run, Path(shutil.copytree(run, run.with_name("other")))]
    read: list[int] = []
    really = Series.take
    monkeypatch.setattr(Series, "take", lambda self, indices: (read.append(len(indices)), really(self, indices))[1])
    options: dict[str, Any] = {"group": "acts/fc1:output", "combine": "nested", "concat_dim": "run", "chunks": {"step": 3}}
    both = xarray.open_mfdataset(runs, engine=ProbesBackend, **options)
    assert both["values"].chunks[1] == (3, 3, 2)
    assert read == []
    found = both["values"].isel(step=slice(3, 6)).mean("step").compute()
    expected = probes.open(run)["acts", "fc1"].numpy()[3:6].mean(0)
    np.testing.assert_allclose(found.values, np.stack([expected, expected]), rtol=1e-6)
    assert read == [3, 3]
