from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import probes
from probes.capture_file.series_part import CLOCKS, StepColumn
from probes.errors import SeriesNotFound, UsageError
from tests.reader.recorded import counted


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"epoch": 1}, [10, 11, 12, 13]),
        ({"epoch": [0, 2], "step": 3}, [3, 23]),
        ({"epoch": slice(1, 3), "step": slice(0, 4, 2)}, [10, 12, 20, 22]),
        ({"step": slice(None, 1)}, [0, 10, 20]),
        ({"step": slice(3, None)}, [3, 13, 23]),
        ({"epoch": np.int64(2), "step": np.arange(2)}, [20, 21]),
        ({"phase": "train", "dtype": "float32", "rank": 0, "epoch": 0}, [0, 1, 2, 3]),
    ],
)
def test_a_selection_uses_the_clock(asked: dict, expected: list[int], tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert run.sel(**asked)["acts", "fc1"].numpy()[:, 0, 0].tolist() == expected
    narrowed = {name: value for name, value in asked.items() if name != "phase"}
    assert run["acts", "fc1"].sel(**narrowed).numpy()[:, 0, 0].tolist() == expected


def test_selections_combine_and_a_coordinate_is_selected_once(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert run.sel(epoch=1)["acts", "fc1"].sel(step=2).numpy()[0, 0, 0] == 12
    with pytest.raises(UsageError, match="`epoch` is already selected"):
        run.sel(epoch=1).sel(epoch=2)


@pytest.mark.parametrize("step", ["3", True, -1, slice(-3, None), slice(0, 4, -1), 1.5, [0.5]])
def test_a_selection_that_is_not_a_number_is_refused(step: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`step`"):
        probes.open(counted(tmp_path, 1)).sel(step=step)


def test_a_selection_without_a_match_is_answered_with_the_existing_values(tmp_path: Path) -> None:
    series = probes.open(counted(tmp_path))["acts", "fc1"].sel(step=99)
    assert len(series) == 0
    with pytest.raises(SeriesNotFound, match="epochs 0 to 2 and steps 0 to 3"):
        series.numpy()


def clocks_of(steps: list[int]) -> NDArray[Any]:
    clocks = np.zeros(len(steps), CLOCKS)
    clocks["step"] = steps
    return clocks


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(0, 14), st.sampled_from([0, 1, 1 << 31, (1 << 32) - 13]), st.booleans())
def test_a_step_is_found_at_any_position(found: list[int], wanted: int, base: int, ascending: bool) -> None:
    steps = StepColumn(clocks_of([base + step for step in (sorted(found) if ascending else found)]))
    expected = np.flatnonzero(steps.column == base + wanted)
    assert steps.at(base + wanted).tolist() == expected.tolist()
