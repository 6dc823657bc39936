from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import probes
from probes.clock import SeriesKey
from probes.errors import RaggedSeries, SeriesNotFound, UsageError
from tests.reader.recorded import Recording, counted


def test_ids_are_returned_with_the_rows(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for step, size in enumerate((3, 2)):
        recording.take(np.full((size, 1), step, "<f4"), step=step).ids(step, [f"s{step}{row}" for row in range(size)])
    recording.sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert series.ids.tolist() == ["s00", "s01", "s02", "s10", "s11"]
    assert series.sel(step=1).ids.tolist() == ["s10", "s11"]


def test_ids_of_a_step_are_shared_out_over_its_microsteps(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((2, 1), "<f4")).take(np.zeros((1, 1), "<f4"), microstep=1).ids(0, [7, 8, 9]).sealed()
    assert probes.open(tmp_path)["acts", "fc1"].ids.tolist() == [7, 8, 9]


def test_rows_that_are_not_samples_have_no_ids(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((4, 1), "<f4")).ids(0, [7, 8, 9]).sealed()
    with pytest.raises(RaggedSeries, match="3 samples and captures of 4 rows"):
        _ = probes.open(tmp_path)["acts", "fc1"].ids


def test_a_run_without_ids_reports_how_to_give_them(tmp_path: Path) -> None:
    with pytest.raises(SeriesNotFound, match=r"run\.steps\(loader, ids=\.\.\.\)"):
        _ = probes.open(counted(tmp_path, 1))["acts", "fc1"].ids


def test_a_mask_keeps_the_places_where_it_is_true(tmp_path: Path) -> None:
    mask_key = SeriesKey("ids", "", "input.mask", "train")
    recording = Recording(tmp_path)
    for step in range(2):
        recording.take(np.arange(12, dtype="<f4").reshape(2, 3, 2) + 100 * step, step=step)
        recording.take(np.array([[1, 0, 0], [1, 1, 0]]) * (1 - step), key=mask_key, step=step)
    recording.sealed()
    run = probes.open(tmp_path)
    assert run["acts", "fc1"].rows(mask=run["ids", ""]).tolist() == [[0, 1], [6, 7], [8, 9]]
    with pytest.raises(RaggedSeries, match="has no capture at"):
        run["acts", "fc1"].rows(mask=run["ids", ""].sel(step=0))


def test_samples_are_read_by_their_ids(tmp_path: Path) -> None:
    for epoch in range(2):
        recording = Recording(tmp_path, epoch)
        for step, ids in enumerate(([3, 1], [2, 4], [1])):
            recording.take(np.array([[10 * epoch + one] for one in ids], "<f4"), step=step).ids(step, ids)
        recording.sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert series.sel(id=1).rows().tolist() == [[1], [1], [11], [11]]
    assert series.sel(id=[4, 3], epoch=1).rows().tolist() == [[13], [14]]
    assert series.sel(id=[4, 3], epoch=1).ids.tolist() == [3, 4]
    assert series.sel(step=2).sel(id=1).steps.tolist() == [2, 2]
    with pytest.raises(SeriesNotFound, match="it selects ids '1', and the ids of the samples are such as 3, 1"):
        series.sel(id="1").rows()


def test_samples_are_never_given_among_others(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((2, 1), "<f4")).ids(0, ["a", "b"]).sealed()
    series = probes.open(tmp_path)["acts", "fc1"].sel(id="b")
    assert series.rows().shape == (1, 1)
    for read in (series.numpy, series.bits, series.masked, series.torch, series.xarray, lambda: list(series), lambda: series[0]):
        with pytest.raises(UsageError, match=r"read them with \.rows\(\)"):
            read()
    Recording(tmp_path, 1).take(np.zeros((3, 1), "<f4")).ids(0, ["a", "b", "c"]).sealed()
    with pytest.raises(UsageError, match=r"read them with \.rows\(\)"):
        probes.open(tmp_path)["acts", "fc1"].sel(id="b").xarray()
    with pytest.raises(UsageError, match="not both"):
        series.rows(mask=series)
    with pytest.raises(UsageError, match="already selected"):
        series.sel(id="a")


def test_samples_of_a_run_without_ids_cannot_be_selected(tmp_path: Path) -> None:
    with pytest.raises(SeriesNotFound, match=r"run\.steps\(loader, ids=\.\.\.\)"):
        probes.open(counted(tmp_path, 1))["acts", "fc1"].sel(id=1).rows()


@pytest.mark.parametrize("wanted", [np.int64(3), np.array(3), np.array([3]), torch.tensor(3), torch.tensor([3]), iter([3]), {3}])
def test_an_id_is_an_integer_of_any_package(wanted: Any, tmp_path: Path) -> None:
    Recording(tmp_path).take(np.arange(3.0).reshape(3, 1)).ids(0, [1, 3, 5]).sealed()
    series = probes.open(tmp_path)["acts", "fc1"]
    assert series.sel(id=wanted).ids.tolist() == [3]
    assert series.sel(id=series.ids[1]).rows().tolist() == [[1]]


@pytest.mark.parametrize("wanted", [3.0, [3.0], True, b"3", {3: 1}, np.ones((2, 2), int), [None]])
def test_an_id_of_another_type_is_refused(wanted: Any, tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((1, 1))).ids(0, [3]).sealed()
    with pytest.raises(UsageError, match="`id` takes sample ids"):
        probes.open(tmp_path)["acts", "fc1"].sel(id=wanted)
