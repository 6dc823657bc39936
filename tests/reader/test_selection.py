from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import probes
from probes.capture_file.series_part import CLOCKS, StepColumn
from probes.cli import cli
from probes.clock import SeriesKey
from probes.errors import SeriesNotFound, UsageError
from tests.reader.recorded import Recording, counted


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


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A series of two dtypes."""
    Recording(tmp_path).take(np.zeros(2, "<f4")).take(np.ones(2, "<f2"), step=1).sealed()
    return tmp_path


@pytest.mark.parametrize("word", ["acts/fc1:output~int8", "acts/fc1:output~", "acts/fc1~int8", "acts~int8"])
def test_a_word_with_a_dtype_that_its_series_lacks_is_answered_with_the_dtypes(word: str, mixed: Path) -> None:
    with pytest.raises(SeriesNotFound, match=f"has no capture of the dtype `{word.partition('~')[2]}`; there is `float16`, `float32`"):
        probes.open(mixed).find(word)
    assert CliRunner().invoke(cli, ["show", str(mixed), word]).exit_code == 2
    assert CliRunner().invoke(cli, ["export", str(mixed), word]).exit_code == 2


def test_a_selected_dtype_without_a_capture_is_answered_with_the_dtypes(mixed: Path) -> None:
    run = probes.open(mixed)
    for series in (run["acts", "fc1"].sel(dtype="int8"), run.sel(dtype="int8")["acts", "fc1"]):
        with pytest.raises(SeriesNotFound, match="no capture in this selection; its captures are `float16` and `float32`"):
            series.numpy()
    with pytest.raises(SeriesNotFound, match=r"`\*\*/\*\*` has this dtype; its captures are `float16` and `float32`"):
        run.match("**~int8")
    for series in (run["acts", "fc1"].sel(step=9), run.sel(step=9).find("acts/fc1:output")):
        with pytest.raises(SeriesNotFound, match="epochs 0 to 0 and steps 0 to 1"):
            series.numpy()
    with pytest.raises(SeriesNotFound, match="epochs 0 to 0 and steps 1 to 1"):
        run.sel(step=9).find("acts/fc1:output~float16").numpy()


def test_a_pattern_with_a_dtype_leaves_out_series_without_it(mixed: Path) -> None:
    Recording(mixed, 1).take(np.zeros(2, "<f4"), key=SeriesKey("acts", "fc2", "output", "train")).sealed()
    assert [one.key.target for one in probes.open(mixed).match("**~float16")] == ["fc1"]
    assert [one.key.target for one in probes.open(mixed).match("**~float32")] == ["fc1", "fc2"]
