import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from probes.commands.show import show
from probes.errors import SeriesNotFound, UsageError
from probes.reader.series_summary import figures, moments_of
from probes.transforms.kernels.moments import Moments, joined
from tests.reader.recorded import Recording, counted


def run(*arguments: object) -> str:
    done = CliRunner().invoke(show, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_series_is_shown_in_figures(tmp_path: Path) -> None:
    counted(tmp_path, 2, 3, dims=("batch", "feature"), attrs={"hook": "forward"})
    assert run(tmp_path, "acts/fc1:output").splitlines() == [
        "acts/fc1:output",
        "float32[batch=2, feature=3]  6 captures, epochs 0-1, steps 0 to 2  144 B",
        "hook: forward",
        "",
        "min 0.0  mean 6.0  std 5.066  max 12.0  nan 0  inf 0  zero 6".replace("0.0", "0").replace("6.0", "6").replace("12.0", "12"),
        "mean  ▁▂▂▇▇█  0 .. 12",
        "",
        "epoch  step  min  mean  std  max  nan  inf  zero",
        "    0     0    0     0    0    0    0    0     6",
        "    0     1    1     1    0    1    0    0     0",
        "    0     2    2     2    0    2    0    0     0",
        "    1     0   10    10    0   10    0    0     0",
        "    1     1   11    11    0   11    0    0     0",
        "    1     2   12    12    0   12    0    0     0",
    ]


def test_labels_of_values_are_columns(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.array([0.5, 0.1], "<f4"), dims=("stat",), coords={"stat": ["mean", "std"]}).sealed()
    assert run(tmp_path, "acts").splitlines()[-2:] == ["epoch  step  mean  std", "    0     0   0.5  0.1"]


def test_each_label_has_a_separate_line(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for step in range(3):
        recording.take(np.array([step, 5 - step], "<f4"), step=step, dims=("stat",), coords={"stat": ["mean", "max"]})
    recording.sealed()
    assert run(tmp_path, "acts").splitlines()[2:6] == ["", "mean  ▁▅█  0 .. 2", "max   █▅▁  5 .. 3", ""]


def test_single_values_are_shown_as_they_are(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.array(0.25)).take(np.array(0.5), step=1).sealed()
    assert run(tmp_path, "acts").splitlines()[-3:] == ["epoch  step  value", "    0     0   0.25", "    0     1    0.5"]


def test_captures_of_several_shapes_have_a_column_for_their_shapes(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((20, 3), "<f4")).take(np.zeros((10, 3), "<f4"), step=1).sealed()
    assert [line.split()[:3] for line in run(tmp_path, "acts").splitlines()[-3:]] == [
        ["epoch", "step", "shape"],
        ["0", "0", "20x3"],
        ["0", "1", "10x3"],
    ]


def test_values_that_are_not_a_number_are_counted_and_left_out(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.array([1, np.nan, np.inf, 3, -np.inf], "<f4")).sealed()
    text = run(tmp_path, "acts")
    assert "min 1  mean 2  std 1  max 3  nan 1  inf 2  zero 0" in text
    (row,) = json.loads(run(tmp_path, "acts", "--json"))["rows"]
    assert row["values"] == [1.0, "nan", "inf", 3.0, "-inf"]


def test_many_captures_are_cut_in_the_middle(tmp_path: Path) -> None:
    counted(tmp_path, 1, 30)
    lines = run(tmp_path, "acts", "--limit", 5).splitlines()
    assert [line.split()[1] for line in lines[-6:]] == ["0", "1", "2", "25", "28", "29"]
    assert "... 25 more; `--limit 30` lists all" in lines
    assert len(run(tmp_path, "acts", "--limit", 0).splitlines()) < 10


def test_steps_and_epochs_can_be_chosen(tmp_path: Path) -> None:
    counted(tmp_path, 3)
    found = json.loads(run(tmp_path, "acts", "--epoch", "1", "--step", "2:", "--json"))
    assert [(row["epoch"], row["step"], row["mean"]) for row in found["rows"]] == [(1, 2, 12.0), (1, 3, 13.0)]
    assert found["figures"]["mean"] == 12.5


@pytest.mark.parametrize(
    "words", [["--epoch", "0", "--epoch", "1"], ["--step", "0", "--step", "1:"], ["--phase", "eval", "--phase", "train"]]
)
def test_an_option_that_is_given_twice_does_not_replace_the_first(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(show, [str(counted(tmp_path, 2)), "acts", *words])
    assert done.exit_code == 2
    assert f"it is given 2 times (`{words[1]}`, `{words[3]}`); give it once" in done.stderr


@pytest.mark.parametrize("words", [["--json"], ["--limit", "3"], ["--sort", "name"]])
def test_options_without_effect_on_a_picture_are_refused(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(show, [str(counted(tmp_path / "run", 1)), "acts", "--plot", str(tmp_path / "a.png"), *words])
    assert isinstance(done.exception, UsageError)
    assert f"leave out `{words[0]}`" in str(done.exception)
    assert not (tmp_path / "a.png").exists()


def test_a_limit_of_a_pattern_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(show, [str(counted(tmp_path, 1)), "acts/**", "--limit", "3"])
    assert isinstance(done.exception, UsageError)
    assert "`acts/**` is a pattern" in str(done.exception)


def test_an_unknown_series_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    done = CliRunner().invoke(show, [str(counted(tmp_path, 1)), "act/fc1:output"])
    assert isinstance(done.exception, SeriesNotFound)
    assert "did you mean `acts`?" in str(done.exception)


@pytest.mark.parametrize("values", [np.arange(7.0), np.random.default_rng(0).normal(3, 2, 1 << 19), np.array([3 + 4j, 0])])
def test_moments_of_any_parts_are_those_of_the_whole(values: np.ndarray) -> None:
    moments = joined([moments_of(part) for part in np.array_split(values, 3)])
    size = np.abs(values)
    wanted = size if np.iscomplexobj(values) else values
    found = figures(moments)
    np.testing.assert_allclose(
        [found[name] for name in ("min", "mean", "std", "max")], [wanted.min(), wanted.mean(), wanted.std(), wanted.max()], rtol=2**-39
    )


def test_figures_of_huge_values_are_valid_json(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.array([1e308, -1e308])).sealed()
    assert json.loads(run(tmp_path, "acts", "--json"), parse_constant=pytest.fail)["figures"]["std"] == "inf"


def test_an_empty_value_has_no_figures() -> None:
    assert figures(Moments())["mean"] is None
