from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from click.testing import CliRunner

import probes
from probes.cli import cli
from probes.clock import SeriesKey
from probes.errors import MissingExtra, SeriesNotFound, UsageError
from probes.reader import frame
from probes.reader.export.clock_columns import CLOCK, NAMES
from tests.reader.recorded import Recording

LAYERS = ("encoder.0.fc", "encoder.1.fc", "head", "")
STATS = ["count", "mean", "std", "min", "max", "l2", "zeros", "nan", "+inf", "-inf"]


def key(probe: str, target: str, leaf: str = "output", phase: str = "train") -> SeriesKey:
    return SeriesKey(probe, target, leaf, phase)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two epochs of two steps: a norm for each layer, statistics of one, values of all shapes of another."""
    for epoch in range(2):
        recording = Recording(tmp_path / "run", epoch)
        for step in range(2):
            for index, layer in enumerate(LAYERS):
                recording.take(np.array(10.0 * index + epoch + step, "<f4"), key=key("norm", layer), step=step)
            numbers = [4, 0.5 + step, 1, -3 - step, 7 + epoch, 2, 0, step, 1, 0]
            recording.take(np.array(numbers, "<f8"), key=key("stats", "head"), step=step, dims=("stat",), coords={"stat": STATS})
            recording.take(np.full((2 + step, 3), step, "<f4"), key=key("acts", "head"), step=step, dims=("batch", "unit"))
            recording.take(np.array(True), key=key("acts", "head", phase="eval"), step=step)
        recording.sealed()
    return tmp_path / "run"


def table(found: Any) -> list[tuple[Any, ...]]:
    return list(found.itertuples(index=False, name=None))


def test_a_pattern_selects_series_by_module_paths(run: Path) -> None:
    opened = probes.open(run)
    assert [one.key.target for one in opened["norm", "encoder.*.fc"]] == ["encoder.0.fc", "encoder.1.fc"]
    assert [one.key.target for one in opened.match("norm")] == sorted(LAYERS)
    assert len(opened.match("norm/**")) == len(opened.match("norm/**:output")) == 4
    assert {one.key.probe for one in opened.match("{norm,stats}/h*")} == {"norm", "stats"}
    assert [one.key.phase for one in opened.match("acts/**@eval")] == ["eval"]
    assert opened["norm", "head"].key.target == "head"
    assert repr(opened.match("norm")).startswith("<SeriesSet of 4: norm/")
    assert len(opened.match("norm")[1:]) == 3


def test_a_pattern_that_matches_nothing_or_is_not_a_pattern_is_refused(run: Path) -> None:
    with pytest.raises(SeriesNotFound, match=r"no series matches `norm/decoder\.\*`; there is `acts/head:output@eval`"):
        probes.open(run)["norm", "decoder.*"]
    with pytest.raises(UsageError, match="is not a pattern"):
        probes.open(run).match("norm/{a")


def test_a_frame_has_a_row_for_each_number_with_its_place(run: Path) -> None:
    found = probes.open(run).frame("norm")
    assert list(found) == [*NAMES, *CLOCK, "value"]
    expected = [
        ("norm", layer, "output", "train", epoch, step, 100 * epoch + step, 0, 0, 0, 0, 10.0 * LAYERS.index(layer) + epoch + step)
        for layer in sorted(LAYERS)
        for epoch in range(2)
        for step in range(2)
    ]
    assert table(found) == expected


def test_labels_and_indices_are_columns_of_a_frame(run: Path) -> None:
    found = probes.open(run).sel(epoch=1).frame("stats")
    assert found["label"].tolist() == STATS * 2
    assert found.loc[(found["label"] == "min") & (found["step"] == 1), "value"].item() == -4
    ragged = probes.open(run).sel(phase="train").frame("acts")
    assert len(ragged) == 2 * (6 + 9)
    assert ragged.loc[ragged["step"] == 1, "batch"].max() == 2
    assert (ragged["value"] == ragged["step"]).all()
    assert ragged["unit"].tolist()[:4] == [0, 1, 2, 0]


def test_series_of_different_kinds_share_a_frame(run: Path) -> None:
    found = probes.open(run).frame()
    count = 4 * 4 + 4 * 10 + 2 * 15 + 4
    assert len(found) == count
    assert found.loc[found["probe"] == "norm", "label"].isna().all()
    assert (found.loc[found["probe"] == "norm", "batch"] == -1).all()


def test_a_frame_that_would_fill_the_memory_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MOST_ROWS", 10)
    with pytest.raises(UsageError, match=r"would have 40 rows, more than 10"):
        probes.open(run).frame("stats")


def test_a_frame_is_of_the_package_that_is_installed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(probes.open(run).frame("norm"), pandas.DataFrame)
    for package in ("polars", "pyarrow"):
        module = pytest.importorskip(package) if package in sys.modules else None
        if module is not None:
            assert len(probes.open(run).frame("norm", package)) == 16
    monkeypatch.setattr(frame, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"torch-probes\[frame\]"):
        probes.open(run).frame("norm")


EMPTY = {
    "selected, then matched": lambda run: run.sel(step=99).match("norm/**"),
    "matched, then selected": lambda run: run.match("norm/**").sel(epoch=99),
}


@pytest.mark.parametrize("made", EMPTY)
def test_a_set_without_a_capture_gives_no_empty_table_file_or_picture(made: str, run: Path, tmp_path: Path) -> None:
    found, out = EMPTY[made](probes.open(run)), tmp_path / "kept.npz"
    out.write_bytes(b"of an earlier export")
    said = "none of 4 series, such as `norm/:output`, has a capture in this selection; it has epochs 0 to 1"
    for use in (found.frame, found.plot, found.arrow, lambda: found.arrow(wide=True), lambda: found.export(out), found.by_dtype):
        with pytest.raises(SeriesNotFound, match=said):
            use()
    assert out.read_bytes() == b"of an earlier export"


def test_a_series_without_a_capture_gives_no_picture_ids_or_ranks(run: Path) -> None:
    series = probes.open(run)["norm", "head"].sel(step=99)
    for use in (series.plot, series.by_rank, lambda: series.ids, series.numpy):
        with pytest.raises(SeriesNotFound, match="`norm/head:output` has no capture in this selection; it has epochs 0 to 1"):
            use()
    assert "<table>" in series._repr_html_()


def test_a_selection_without_a_capture_is_not_called_an_empty_run(run: Path) -> None:
    Recording(run, 2).take(np.zeros(2), key=key("norm", "head")).sealed()
    with pytest.raises(SeriesNotFound, match=r"no capture in this selection \(phase eval, epoch 2\)"):
        probes.open(run).sel(phase="eval", epoch=2).match("norm/**")


def test_a_frame_of_an_unknown_package_is_an_error_of_usage(run: Path) -> None:
    with pytest.raises(UsageError, match="`panda` makes no frame; it is one of `pandas`, `polars`, `pyarrow`"):
        probes.open(run).frame("norm", "panda")  # type: ignore[arg-type]  # a name that the types refuse


def test_a_pattern_may_select_values(run: Path) -> None:
    found = probes.open(run)
    assert [one.key.leaf for one in found["norm", "head", "out*"]] == ["output"]  # type: ignore[attr-defined]  # a pattern gives a set
    with pytest.raises(SeriesNotFound, match="no series matches `norm/head:in*`".replace("*", r"\*")):
        found["norm", "head", "in*"]


@pytest.mark.parametrize("word", [3, None, b"norm", ["norm", "stats"]])
def test_a_word_that_is_not_a_text_is_an_error_of_usage(word: Any, run: Path) -> None:
    found = probes.open(run)
    for use in (found.find, found.match, found.frame, found.plot):
        with pytest.raises(UsageError, match="a series is named by a text"):
            use(word)


def show(*words: str) -> str:
    done = CliRunner().invoke(cli, ["show", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_show_gives_a_row_for_each_series_of_a_pattern(run: Path) -> None:
    lines = show(str(run), "norm/**").splitlines()
    assert lines[0].split() == ["series", "captures", "last", "min", "max", "nan", "inf", "mean", "of", "each", "capture"]
    assert [line.split()[:5] for line in lines[1:]][1] == ["norm/encoder.0.fc:output", "4", "2", "0", "2"]
    assert [line.split()[0] for line in show(str(run), "norm/**", "--sort", "max").splitlines()[1:]] == [
        f"norm/{target}:output" for target in reversed(LAYERS)
    ]


def test_show_takes_the_figures_of_stats_from_their_labels(run: Path) -> None:
    (line,) = show(str(run), "st*/**").splitlines()[1:]
    assert line.split()[:7] == ["stats/head:output", "4", "1.5", "-4", "8", "2", "4"]


def test_show_refuses_an_order_for_one_series(run: Path) -> None:
    done = CliRunner().invoke(cli, ["show", str(run), "norm/head", "--sort", "max"])
    assert done.exit_code == 2
    assert "orders the rows of a pattern" in done.stderr
