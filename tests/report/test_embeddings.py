"""Rows of captures as points: against a singular value decomposition of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.clock import SeriesKey
from probes.report.embeddings import projected
from probes.report.plot_data import PlotData
from tests.reader.recorded import Recording

KEY = SeriesKey("acts", "fc", "output", "train")


def shown(path: Path) -> list[dict[str, Any]]:
    return [one for one in PlotData(probes.open(path)).data()["pictures"] if one["kind"] == "samples"]


def by_hand(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, sizes, _ = np.linalg.svd(rows.astype(float) - rows.astype(float).mean(0), full_matrices=False)
    points = left[:, :2] * sizes[:2]
    return points * np.sign(points[np.abs(points).argmax(0), [0, 1]]), (sizes**2 / (sizes**2).sum())[:2]


@pytest.mark.parametrize(("shape", "scale"), [((50, 8), 1.0), ((9, 300), 1.0), ((20, 5), 1e200), ((20, 5), 1e-200)], ids=str)
def test_the_points_are_the_first_two_principal_components(shape: tuple[int, int], scale: float) -> None:
    rows = np.random.default_rng(0).standard_normal(shape) * np.geomspace(1, 9, shape[1]) * scale + 3 * scale
    found = projected(rows)
    assert found is not None
    points, share = by_hand(rows / scale)
    np.testing.assert_allclose(found[0] / scale, points, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[1], share, rtol=1e-9)


def test_rows_that_are_all_the_same_have_no_picture() -> None:
    assert projected(np.full((5, 3), 0.1)) is None
    assert projected(np.zeros((5, 3))) is None


def test_the_rows_of_the_last_epoch_have_their_ids_and_the_labels_of_the_same_step(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((2, 3, 4, 2, 3)).astype("<f4")
    for epoch in range(2):
        recording = Recording(tmp_path / "run", epoch)
        for step in range(3):
            recording.take(rows[epoch, step], key=KEY, step=step, dims=("batch", "y", "x"))
            recording.take(np.arange(4) + 10 * step, key=SeriesKey("y", "", "loop.labels", "train"), step=step)
            recording.take(np.arange(5), key=SeriesKey("other", "", "loop.a", "train"), step=step)
            recording.ids(step, [f"s{step}{row}" for row in range(4)])
        recording.sealed()
    (found,) = shown(tmp_path / "run")
    points, _ = by_hand(rows[1].reshape(12, -1))
    np.testing.assert_allclose(np.stack([found["x"], found["y"]], axis=1), points, rtol=1e-5, atol=1e-5)
    assert (found["epoch"], found["rows"], found["labelled"]) == (1, 12, "loop.labels")
    assert found["labels"] == [10 * step + row for step in range(3) for row in range(4)]
    assert found["ids"] == [f"s{step}{row}" for step in range(3) for row in range(4)]
    assert found["steps"] == [100 + step for step in range(3) for _ in range(4)]


def test_evenly_spaced_rows_of_many_are_shown_and_rows_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).standard_normal((3000, 3)).astype("<f4")
    rows[0, 1], rows[2999] = np.nan, np.inf
    Recording(tmp_path / "run").take(rows, key=KEY).sealed()
    (found,) = shown(tmp_path / "run")
    assert (len(found["x"]), found["left"], found["rows"]) == (998, 2, 3000)
    assert found["labels"] == found["ids"] == []


@pytest.mark.parametrize("dims", [("head", "query"), ("stat", "unit")])
def test_an_axis_that_is_not_that_of_samples_is_not_projected(tmp_path: Path, dims: tuple[str, ...]) -> None:
    Recording(tmp_path / "run").take(np.random.default_rng(3).standard_normal((6, 4)), key=KEY, dims=dims).sealed()
    Recording(tmp_path / "weights").take(np.ones((6, 4)), key=SeriesKey("w", "fc.weight", "data", "train")).sealed()
    assert shown(tmp_path / "run") == shown(tmp_path / "weights") == []
