from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from probes.clock import SeriesKey
from probes.commands.report import report as command
from probes.errors import SeriesNotFound, StorageError, UsageError
from probes.report import library
from probes.report.content import read
from probes.report.document import report
from probes.transforms.stats import STATS
from tests.proof.runs import manifest, write_run
from tests.reader.recorded import Recording, counted
from tests.report.pages_read import Read, data_of, line_of, same

EVIL = "</script><script>window.stolen=1</script>\u202e" + "x" * 4000


@pytest.fixture(autouse=True)
def _small_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing the drawing library takes a second, and its content is not what is tested here."""
    monkeypatch.setattr("probes.report.document.plotly_js", lambda: "var Plotly;")


def page_of(*paths: Path) -> str:
    return report(paths)[0]


def stats_run(path: Path, epochs: int = 2, steps: int = 5) -> np.ndarray:
    """A run with the ten statistics of two layers; returns (layer, capture, statistic)."""
    numbers = np.random.default_rng(0).standard_normal((2, epochs * steps, len(STATS)))
    numbers[..., STATS.index("nan")] = 0
    numbers[1, 3, STATS.index("mean")] = np.nan
    numbers[1, 4, STATS.index("mean")] = -np.inf
    for epoch in range(epochs):
        recording = Recording(path, epoch)
        for step in range(steps):
            for layer in range(2):
                key = SeriesKey("acts", f"h.{layer}", "output", "train")
                recording.take(numbers[layer, epoch * steps + step], key=key, step=step, dims=("stat",), coords={"stat": list(STATS)})
        recording.sealed()
    return numbers


def test_every_statistic_of_every_step_is_in_the_page_as_it_is_in_the_file(tmp_path: Path) -> None:
    numbers = stats_run(tmp_path / "run")
    (run,) = data_of(page_of(tmp_path / "run"))["runs"]
    for layer in range(2):
        for at, stat in enumerate(STATS):
            line = line_of(run, "acts", f"h.{layer}", stat)
            assert list(line) == [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]
            assert same(list(line.values()), numbers[layer, :, at])


def test_the_same_run_makes_the_same_page(tmp_path: Path) -> None:
    stats_run(tmp_path / "run")
    assert page_of(tmp_path / "run") == page_of(tmp_path / "run")


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "<i8", "|i1"])
def test_numbers_of_every_dtype_are_exact(tmp_path: Path, dtype: str) -> None:
    made = np.random.default_rng(1)
    numbers = (made.standard_normal(9) * 10.0 ** made.integers(-3, 2, 9)).astype(dtype)
    if numbers.dtype.kind == "f":
        numbers[:4] = [np.nan, np.inf, -np.inf, -0.0]
    recording = Recording(tmp_path / "run")
    for step, number in enumerate(numbers):
        recording.take(np.array(number), step=step)
    recording.sealed()
    (run,) = data_of(page_of(tmp_path / "run"))["runs"]
    line = list(line_of(run, "acts", "fc1").values())
    assert same(line, numbers)
    assert [np.signbit(one) for one in line] == np.signbit(numbers).tolist()


def test_captures_with_axes_have_the_figures_that_the_reader_computes_and_their_cells(tmp_path: Path) -> None:
    value = np.arange(2 * 3 * 4 * 5, dtype="<f4").reshape(2, 3, 4, 5)
    Recording(tmp_path / "run").take(value, dims=("batch", "channel", "y", "x")).sealed()
    (run,) = data_of(page_of(tmp_path / "run"))["runs"]
    assert line_of(run, "acts", "fc1", "mean") == {0: 59.5}
    assert line_of(run, "acts", "fc1", "max") == {0: 119}
    (picture,) = run["pictures"]
    (shot,) = picture["shots"]
    assert shot["shape"] == [2, 3, 4, 5]
    assert [same(tile, value[0, channel].ravel()) for channel, tile in enumerate(shot["tiles"])] == [True] * 3


def test_captures_of_several_sizes_are_drawn_as_they_are_and_empty_ones_left_out(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run")
    for step, rows in enumerate((3, 0, 2)):
        recording.take(np.full((rows, 4), step, "<f4"), key=SeriesKey("matrix", "fc1", "output", "train"), step=step)
        recording.take(np.full(rows, step, "<f4"), key=SeriesKey("vector", "fc1", "output", "train"), step=step)
        recording.take(np.empty((0, 2), "<f4"), key=SeriesKey("empty", "fc1", "output", "train"), step=step)
    recording.sealed()
    (run,) = data_of(page_of(tmp_path / "run"))["runs"]
    matrix, vector, _samples = run["pictures"]
    assert [(shot["step"], shot["shape"], shot["tiles"]) for shot in matrix["shots"]] == [(0, [3, 4], [[0] * 12]), (2, [2, 4], [[2] * 8])]
    assert vector["rows"] == [[0, 0, 0], [None] * 3, [2, 2, None]]
    assert np.isnan(line_of(run, "empty", "fc1", "mean")[0])


def test_a_histogram_keeps_its_bins_and_counts(tmp_path: Path) -> None:
    labels = ("under", "[0, 1)", "[1, 2]", "over", "nan")
    counts = np.random.default_rng(2).integers(0, 9, (4, 5))
    recording = Recording(tmp_path / "run")
    for step in range(4):
        recording.take(counts[step], step=step, dims=("bin",), coords={"bin": list(labels)})
    recording.sealed()
    (run,) = data_of(page_of(tmp_path / "run"))["runs"]
    (bars,) = run["pictures"]
    assert (bars["kind"], bars["labels"], bars["rows"]) == ("histogram", list(labels), counts.tolist())
    assert list(line_of(run, "acts", "fc1", "over").values()) == counts[:, 3].tolist()


def test_captures_of_several_calls_are_separate_lines(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run")
    for step in range(3):
        for call in range(2):
            recording.take(np.array(10.0 * call + step), step=step, call=call)
    recording.sealed()
    (run,) = data_of(page_of(tmp_path / "run"))["runs"]
    assert line_of(run, "acts", "fc1", place="call 0") == {0: 0, 1: 1, 2: 2}
    assert line_of(run, "acts", "fc1", place="call 1") == {0: 10, 1: 11, 2: 12}


def test_names_of_an_unknown_author_stay_text(tmp_path: Path) -> None:
    key = SeriesKey("acts", EVIL, "output", "train")
    Recording(tmp_path / "run").take(np.ones((3, 4), "<f4"), key=key).sealed()
    write_run(tmp_path / "other", epochs=1, origin=manifest().model_copy(update={"run_id": EVIL}))
    page = page_of(tmp_path / "run", tmp_path / "other")
    read = Read(page)
    assert read.tags["script"] == 3
    assert "\u202e" not in page
    assert "<script>window.stolen=1</script>\\u202exxx" in read.text
    (row,) = data_of(page)["runs"][0]["groups"][0]["rows"]
    assert row["target"] == EVIL.replace("\u202e", "\\u202e")


def test_a_run_that_verifies_is_reported_and_a_run_that_does_not_exits_with_1(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    done = CliRunner().invoke(command, [str(tmp_path / "run"), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0
    assert "verifies (2 files" in Read((tmp_path / "page.html").read_text("utf-8")).text
    content = bytearray((tmp_path / "run" / "epoch-0001.h5").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "run" / "epoch-0001.h5").write_bytes(content)
    done = CliRunner().invoke(command, [str(tmp_path / "run"), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 1
    assert "does not verify" in Read((tmp_path / "page.html").read_text("utf-8")).text


def test_an_open_run_shows_the_steps_of_its_journal_and_its_state(tmp_path: Path) -> None:
    counted(tmp_path / "run", epochs=1)
    Recording(tmp_path / "run", 1).take(np.full((2, 3), 7, "<f4")).left()
    page = page_of(tmp_path / "run")
    assert "Epochs 1 are still open" in Read(page).text
    assert line_of(data_of(page)["runs"][0], "acts", "fc1", "mean")[100] == 7


def test_readable_epochs_are_shown_if_another_is_damaged(tmp_path: Path) -> None:
    counted(tmp_path / "run")
    file = tmp_path / "run" / "epoch-0001.h5"
    file.write_bytes(file.read_bytes()[:3000])
    page = page_of(tmp_path / "run")
    assert "Epoch 1 cannot be read" in Read(page).text
    assert set(line_of(data_of(page)["runs"][0], "acts", "fc1", "mean")) == {0, 1, 2, 3, 200, 201, 202, 203}


def test_a_run_without_captures_is_reported_as_such(tmp_path: Path) -> None:
    Recording(tmp_path / "run").sealed()
    assert "The run has no captures." in Read(page_of(tmp_path / "run")).text


def test_two_runs_are_compared_at_their_first_difference(tmp_path: Path) -> None:
    for name, shift in (("a", 0.0), ("b", 0.5)):
        recording = Recording(tmp_path / name)
        for step in range(4):
            recording.take(np.array(step + shift * (step > 1)), step=step)
        recording.sealed()
    page = page_of(tmp_path / "a", tmp_path / "b")
    assert "epoch 0, step 2: acts/fc1:output" in Read(page).text
    (parting,) = data_of(page)["partings"]
    assert (parting["step"], parting["different"], parting["compared"]) == (2, 2, 4)


def test_a_long_line_keeps_its_ends_its_extremes_and_values_that_are_not_finite(tmp_path: Path) -> None:
    numbers = np.random.default_rng(3).standard_normal(2500).astype("<f4")
    numbers[[17, 1000, 2001]] = [1e9, -1e9, np.nan]
    recording = Recording(tmp_path / "run")
    for step, number in enumerate(numbers):
        recording.take(np.array(number), step=step)
    recording.sealed()
    (run,) = data_of(page_of(tmp_path / "run"))["runs"]
    line = line_of(run, "acts", "fc1")
    assert len(line) < 2100
    assert run["thinned_lines"] == 1
    assert {0, 17, 1000, 2001, 2499} <= set(line)
    assert same(list(line.values()), numbers[list(line)])


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    page = page_of(tmp_path / "run")
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "default-src 'none'" in page


def test_a_missing_run_and_another_suffix_are_refused(tmp_path: Path) -> None:
    missing = CliRunner().invoke(command, [str(tmp_path / "none"), "-o", str(tmp_path / "page.html")])
    assert isinstance(missing.exception, StorageError)
    other = CliRunner().invoke(command, [str(tmp_path), "-o", "page.pdf"])
    assert isinstance(other.exception, UsageError)


def test_the_library_is_that_of_the_package() -> None:
    assert library.plotly_js().startswith("/**\n* plotly.js v")


def test_the_selected_ranks_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.report.content.MOST_RANKS", 2)
    for rank in (3, 5, 7):
        Recording(tmp_path / "run", rank=rank).take(np.array(float(rank))).sealed()
    found = read(tmp_path / "run", 1.0, rank=[3, 7])
    (group,) = found.plots["groups"]
    assert [row["rank"] for row in group["rows"]] == [3, 7]
    assert [row["captures"] for row in group["rows"]] == [1, 1]
    found = read(tmp_path / "run", 1.0)
    assert [row["rank"] for row in found.plots["groups"][0]["rows"]] == [3, 7]
    assert any("2 of 3 ranks" in line for line in found.remarks)
    with pytest.raises(SeriesNotFound, match=r"\(rank 50\); ranks of its files: 3, 5, 7"):
        read(tmp_path / "run", 1.0, rank=50)
