import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import probes
from probes.capture_file.series_part import CLOCKS, StepColumn
from probes.cli import cli
from probes.clock import SeriesKey
from probes.errors import SeriesNotFound, UsageError
from probes.reader.selected import Capture
from probes.reader.selection import Selection
from probes.reader.series import Series
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
        ({"epoch": np.array(2), "step": slice(np.int64(1), np.int8(3))}, [21, 22]),
        ({"epoch": torch.tensor(2), "step": torch.arange(2)}, [20, 21]),
        ({"phase": np.array(["train"]), "dtype": ["float32", torch.float32], "step": {1}, "epoch": range(2)}, [1, 11]),
        ({"phase": np.array("train"), "dtype": torch.float32, "step": [], "epoch": 1}, []),
        ({"dtype": "torch.float32", "step": 3, "epoch": (0, 0)}, [3]),
        ({"dtype": {"int8": 0, "float32": 0}.keys(), "step": slice(2, sys.maxsize), "epoch": 0}, [2, 3]),
        ({"phase": "train", "dtype": "float32", "rank": 0, "epoch": 0}, [0, 1, 2, 3]),
    ],
)
def test_a_selection_uses_the_clock(asked: dict, expected: list[int], tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert [one.value[0, 0] for one in captured(run.sel(**asked)["acts", "fc1"])] == expected
    narrowed = {name: value for name, value in asked.items() if name != "phase"}
    assert [one.value[0, 0] for one in captured(run["acts", "fc1"].sel(**narrowed))] == expected


def captured(series: Series) -> list[Capture]:
    return list(series) if len(series) else []


@pytest.mark.parametrize("several", [iter, list, set, np.array, torch.tensor, lambda numbers: (one for one in numbers)])
def test_any_collection_is_read_once_for_all_series(several: Callable[[list[int]], Any], tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    first, second = run.match("**"), run.sel(step=several([0, 2]))
    assert [len(one) for one in second.match("**").sel(epoch=several([0, 1]))] == [4]
    assert [len(one) for one in first.sel(epoch=several([0, 1]))] == [8]
    assert len(second["acts", "fc1"]) == 6
    assert second.epochs == [0, 1, 2]
    runs = probes.open_all(tmp_path).sel(epoch=several([1, 2]))
    assert [run.epochs for run in runs.values()] == [[1, 2]]


def test_selections_combine_and_a_coordinate_is_selected_once(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert run.sel(epoch=1)["acts", "fc1"].sel(step=2).numpy()[0, 0, 0] == 12
    with pytest.raises(UsageError, match="`epoch` is already selected"):
        run.sel(epoch=1).sel(epoch=2)


WRONG_NUMBERS = ["3", b"3", True, np.True_, np.array([True]), torch.tensor(True), {0: 1}, object(), [[1, 2]], np.ones((2, 2), int), [None]]
WRONG_NUMBERS += [-1, slice(-3, None), slice(0, 4, -1), slice(0, 4, 0), slice(0.5), slice("a"), 1.5, [0.5], np.array(0.5), torch.ones(2)]
WRONG_NUMBERS += [1 << 63, [1 << 80], slice(1 << 63, None)]


@pytest.mark.parametrize("step", WRONG_NUMBERS)
def test_a_selection_that_is_not_a_number_is_refused(step: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`step`"):
        probes.open(counted(tmp_path, 1)).sel(step=step)


@pytest.mark.parametrize("names", [3, b"train", [3], None, {"train": 1}, np.array([1]), [["train"]], True])
def test_a_name_that_is_not_a_text_is_refused(names: Any, tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path, 1))
    for asked in ({"phase": names}, {"dtype": names}):
        if names is not None:
            with pytest.raises(UsageError, match=rf"`{next(iter(asked))}` takes"):
                run.sel(**asked)
    with pytest.raises(UsageError, match="not `float3`; did you mean `float32`"):
        run.sel(dtype="float3")


def test_the_words_of_a_selection_name_its_places(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    with pytest.raises(SeriesNotFound, match=r"in this selection \(epochs 5:2, which is empty\)"):
        run.sel(epoch=slice(5, 2))["acts"]
    words = run.sel(epoch=[7, 5], phase="train")._selection.words
    assert words == "phase train, epochs 5, 7"
    assert Selection().narrowed(id=range(8), rank=slice(1, None, 2), dtype=()).words == (
        "ranks 1::2, an empty list of dtypes, ids 0, 1, 2, 3, 4 and 3 more"
    )
    assert Selection().narrowed(id=["1", 1]).words == "ids 1, '1'"


def test_a_step_beyond_all_integers_is_an_error_of_usage(tmp_path: Path) -> None:
    counted(tmp_path, 1)
    done = CliRunner().invoke(cli, ["show", str(tmp_path), "acts/fc1:output", "--step", "99999999999999999999999:"])
    assert (done.exit_code, "takes numbers up to 9223372036854775807" in done.output) == (2, True)


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


def test_a_phase_that_the_run_does_not_have_is_an_error_and_the_usual_two_may_be_empty(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path, 2))
    assert not run.sel(phase="eval").series
    assert not run.sel(phase=["eval"]).outlines
    for asked in ("trian", ["train", "trian"]):
        with pytest.raises(SeriesNotFound, match="the run has no capture of the phase `trian`; did you mean `train`"):
            _ = run.sel(phase=asked).series
        with pytest.raises(SeriesNotFound, match="`trian`"):
            _ = run.sel(phase=asked).outlines
    with pytest.raises(SeriesNotFound, match=r"`xyz`; it has `train`$"):
        run.find("acts@xyz")


def test_a_phase_that_only_other_epochs_have_gives_no_series(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros(2, "<f4"), key=SeriesKey("acts", "fc1", "output", "holdout")).sealed()
    Recording(tmp_path, 1).take(np.zeros(2, "<f4")).sealed()
    assert probes.open(tmp_path).sel(phase="holdout").series
    assert not probes.open(tmp_path).sel(phase="holdout", epoch=1).series


@pytest.mark.parametrize("what", ["series", "outlines", "probes", "verdicts", "events", "missing", "captures_roots", "about"])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"epoch": 99}, r"\(epoch 99\); epochs of its files: 0-2, 5$"),
        ({"epoch": [0, 3, 4]}, r"\(epochs 3, 4\); epochs of its files: 0-2, 5$"),
        ({"epoch": slice(3, 5)}, r"\(epochs 3:5\); epochs of its files: 0-2, 5$"),
        ({"epoch": 1, "rank": (0, 1)}, r"\(rank 1\); ranks of its files: 0$"),
    ],
)
def test_an_epoch_or_a_rank_without_a_file_is_an_error_of_all_that_reads_files(asked: dict, said: str, what: str, tmp_path: Path) -> None:
    counted(tmp_path)
    Recording(tmp_path, 5).take(np.zeros(2, "<f4")).sealed()
    selected = probes.open(tmp_path).sel(**asked)
    with pytest.raises(SeriesNotFound, match=said):
        getattr(selected, what)
    assert set(selected.epochs) <= {0, 1}


def test_a_slice_needs_one_epoch_with_a_file_and_an_empty_list_none(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert len(run.sel(epoch=slice(2, 99))["acts", "fc1"]) == 4
    assert not run.sel(epoch=[]).series


def test_only_the_attempts_of_selected_epochs_are_listed(tmp_path: Path) -> None:
    run = probes.open(counted(tmp_path))
    assert [one.epoch for one in run.attempts] == [0, 1, 2]
    assert [one.epoch for one in run.sel(epoch=slice(1, None)).attempts] == [1, 2]
