import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from probes.clock import SeriesKey
from probes.commands.export import export
from probes.errors import SeriesNotFound, UsageError
from tests.reader.recorded import Recording, counted


def run(*arguments: object) -> Result:
    return CliRunner().invoke(export, [str(argument) for argument in arguments])


def test_npz_holds_each_series_with_its_clocks(tmp_path: Path) -> None:
    out = tmp_path / "captures.npz"
    done = run(counted(tmp_path / "run", 2), "--out", out, "--step", "0:2")
    assert done.stdout == ""
    with np.load(out) as found:
        assert sorted(found) == ["acts/fc1:output", "acts/fc1:output.clocks"]
        assert found["acts/fc1:output"][:, 0, 0].tolist() == [0, 1, 10, 11]
        assert found["acts/fc1:output.clocks"]["epoch"].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "words",
    [
        ["--epoch", "9"],
        ["--step", "9"],
        ["--rank", "3"],
        ["--phase", "eval"],
        ["acts/**", "--step", "9"],
        ["acts/fc1", "rare/fc2", "--epoch", "1"],
        ["acts/*", "rare/*", "--epoch", "1"],
    ],
)
def test_a_selection_without_a_capture_writes_no_file(words: list[str], tmp_path: Path) -> None:
    counted(tmp_path / "run", 2)
    Recording(tmp_path / "run", 2).take(np.zeros(2, "<f4"), key=SeriesKey("rare", "fc2", "output", "train")).sealed()
    out = tmp_path / "captures.npz"
    for to in ([], ["--out", out]):
        done = run(tmp_path / "run", *words, *to)
        assert isinstance(done.exception, SeriesNotFound), words
        assert (done.stdout, done.stderr, out.exists()) == ("", "", False)


@pytest.mark.parametrize("words", [["acts"], ["--out", "run.json"], ["--epoch", "0"], ["--format", "npz"], ["--wide"]])
def test_the_manifest_is_printed_and_options_without_effect_are_refused(words: list[str], tmp_path: Path) -> None:
    counted(tmp_path, 1)
    done = run(tmp_path, "--manifest", *words)
    assert isinstance(done.exception, UsageError)
    assert f"leave out `{'SERIES' if words == ['acts'] else words[0]}`" in str(done.exception)
    assert json.loads(run(tmp_path, "--manifest").stdout)["run_id"] == "r"


def test_a_run_without_captures_is_exported_as_an_empty_file(tmp_path: Path) -> None:
    Recording(tmp_path / "run").sealed()
    assert run(tmp_path / "run", "--out", tmp_path / "captures.jsonl").stderr.startswith("0 series")
    assert (tmp_path / "captures.jsonl").read_bytes() == b""


def test_npz_joins_captures_of_different_rows(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((3, 2), "<f4")).take(np.ones((1, 2), "<f4"), step=1).sealed()
    run(tmp_path, "--out", tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        assert found["acts/fc1:output"].shape == (4, 2)
        assert found["acts/fc1:output.row_sizes"].tolist() == [3, 1]


def test_npz_refuses_captures_of_any_shape_and_leaves_no_file(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros((3, 2), "<f4")).take(np.ones((1, 3), "<f4"), step=1).sealed()
    done = run(tmp_path, "--out", tmp_path / "a.npz")
    assert isinstance(done.exception, UsageError)
    assert "`--format jsonl` exports captures of any shape" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".npz", ".tmp")] == []


def test_jsonl_holds_one_capture_in_each_line(tmp_path: Path) -> None:
    key = SeriesKey("grads", "", "grad", "eval")
    Recording(tmp_path, 4).take(np.array([[1, np.nan]], "<f4"), key=key, step=2).take(
        np.array(1j), key=key, step=3, dtype="complex128", shape=()
    ).sealed()
    lines = [json.loads(line) for line in run(tmp_path, "grads~float32").stdout.splitlines()]
    assert [(line["target"], line["phase"], line["epoch"], line["step"]) for line in lines] == [("", "eval", 4, 2)]
    assert lines[0]["shape"] == [1, 2]
    assert lines[0]["values"] == [1.0, "nan"]
    assert json.loads(run(tmp_path, "grads~complex128").stdout)["values"] == ["1j"]
    assert len(run(tmp_path).stdout.splitlines()) == 2


def test_npz_is_not_written_to_a_terminal(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--out"):
        CliRunner().invoke(export, [str(counted(tmp_path, 1)), "--format", "npz"], catch_exceptions=False)


def test_the_manifest_is_printed_on_request(tmp_path: Path) -> None:
    assert json.loads(run(counted(tmp_path, 1), "--manifest").stdout) == {"run_id": "r"}


def test_a_link_and_a_pipe_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    Recording(tmp_path / "run").take(np.zeros((3, 2), "<f4")).sealed()
    link, pipe = tmp_path / "link.npz", tmp_path / "pipe.jsonl"
    link.symlink_to(tmp_path / "far.npz")
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as reader:
        text = reader.submit(pipe.read_text)
        assert run(tmp_path / "run", "--out", pipe).exit_code == 0
        assert json.loads(text.result(timeout=10))["target"] == "fc1"
    assert run(tmp_path / "run", "--out", link).exit_code == 0
    assert pipe.is_fifo()
    assert link.is_symlink()
    with np.load(tmp_path / "far.npz") as found:
        assert "acts/fc1:output" in found
