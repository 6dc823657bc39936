"""Pictures have the numbers of the reader; each is drawn without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import probes
from probes.cli import cli
from probes.clock import SeriesKey
from probes.errors import UsageError
from probes.reader.plot import axes as shared
from probes.reader.run import RunReader
from tests.reader.recorded import Recording

figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed; the extra `plot` brings it")

STATS = ["mean", "std", "max"]
BINS = ["under", "[-1, 0)", "[0, 1]", "over", "nan"]


def key(probe: str, target: str = "fc", phase: str = "train") -> SeriesKey:
    return SeriesKey(probe, target, "output", phase)


@pytest.fixture
def run(tmp_path: Path) -> RunReader:
    random = np.random.default_rng(0)
    for epoch in range(2):
        recording = Recording(tmp_path / "run", epoch)
        for step in range(3):
            for layer in range(3):
                value = np.nan if (layer, step) == (1, 2) else 10.0**layer + step
                recording.take(np.array(value, "<f4"), key=key("norm", f"h.{layer}$_^"), step=step)
                recording.take(
                    np.array([step, layer, epoch], "<f8"), key=key("stats", f"h.{layer}"), step=step, dims=("stat",), coords={"stat": STATS}
                )
            counts = np.array([1, 2 + step, 3, 0, 4])
            recording.take(counts, key=key("counts"), step=step, dims=("bin",), coords={"bin": BINS})
            recording.take(random.standard_normal(20).astype("<f4"), key=key("vector"), step=step, dims=("unit",))
            recording.take(random.standard_normal((2, 5, 4, 6)).astype("<f4"), key=key("maps"), step=step)
            recording.take(np.full((2 + step, 3), 0x3F80, "<u2"), dtype="bfloat16", key=key("half"), step=step)
        recording.sealed()
    return probes.open(tmp_path / "run")


def axes() -> Any:
    return figures.Figure(layout="constrained").subplots()


def cells(drawn: Any) -> Any:
    (mesh,) = drawn.collections
    return mesh.get_array().filled(np.nan)


def test_numbers_are_lines_over_global_step(run: RunReader) -> None:
    drawn = run["norm", "h.0$_^"].plot(axes())
    (line,) = drawn.lines
    np.testing.assert_array_equal(line.get_xydata(), [[0, 1], [1, 2], [2, 3], [100, 1], [101, 2], [102, 3]])
    assert (drawn.get_xlabel(), drawn.get_title()) == ("global_step", "norm/h.0$_^:output")
    stats = run["stats", "h.2"].plot(axes())
    assert [line.get_label() for line in stats.lines] == STATS
    assert stats.lines[1].get_ydata().tolist() == [2] * 6


def test_a_probe_is_a_heat_map_of_its_layers_over_steps(run: RunReader) -> None:
    drawn = run.plot("norm", axes())
    np.testing.assert_array_equal(cells(drawn), [series.numpy() for series in run.match("norm")])
    assert [text.get_text() for text in drawn.get_yticklabels()] == [f"h.{layer}$_^:output" for layer in range(3)]
    assert drawn.get_title() == "norm (gray: missing or not finite)"
    np.testing.assert_array_equal(cells(run.plot("stats", axes(), label="max")), [[0] * 3 + [1] * 3] * 3)
    with pytest.raises(UsageError, match=r"`stats/h.0:output` has no `l3`; it has `mean`, `std`, `max`"):
        run.plot("stats", axes(), label="l3")


def test_a_histogram_is_drawn_over_time_with_the_share_outside_of_it(run: RunReader) -> None:
    drawn = run["counts", "fc"].plot(axes())
    shares = [[(2 + step) / (10 + step) for step in range(3)] * 2, [3 / (10 + step) for step in range(3)] * 2]
    np.testing.assert_allclose(cells(drawn), shares)
    assert drawn.get_ylim() == (-1, 1)
    assert "not shown: 0.091 below, 0.36 NaN" in drawn.get_title()


def test_a_vector_is_a_heat_map_and_a_map_of_features_is_images(run: RunReader) -> None:
    np.testing.assert_array_equal(cells(run["vector", "fc"].plot(axes())), run["vector", "fc"].numpy().T)
    (image,) = run["maps", "fc"].plot(axes(), capture=1).images
    sheet = image.get_array().filled(np.nan)
    value = run["maps", "fc"][1].value[0]
    assert sheet.shape == (2 * 4 + 1, 3 * 6 + 2)
    np.testing.assert_array_equal(sheet[5:, 7:13], value[4])
    (image,) = run["half", "fc"].plot(axes()).images
    assert image.get_array().shape == (4, 3)


def test_more_steps_than_the_width_of_a_screen_are_thinned_out_with_a_remark(run: RunReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_COLUMNS", 3)
    drawn = run["vector", "fc"].plot(axes())
    assert cells(drawn).shape == (20, 3)
    assert drawn.get_xlabel() == "global_step (every 2th is shown)"


@pytest.mark.parametrize("word", ["norm/**", "maps/fc"])
def test_show_draws_into_a_file(run: RunReader, tmp_path: Path, word: str) -> None:
    done = CliRunner().invoke(cli, ["show", str(run.path), word, "--plot", str(tmp_path / "a.png")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_file_that_is_not_a_picture_is_refused(run: RunReader, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["show", str(run.path), "norm/**", "--plot", str(tmp_path / "a.txt")])
    assert "the suffix is one of .png, .svg, .pdf" in done.output
