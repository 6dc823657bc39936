import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import probes
from probes.clock import SeriesKey
from probes.commands.ls import ls
from probes.commands.rendering.table import sparkline, table
from probes.commands.show import show
from probes.errors import SeriesNotFound, UsageError
from probes.printable import spans
from probes.signature import size
from tests.reader.recorded import Recording, counted


def run(*arguments: object) -> str:
    done = CliRunner().invoke(ls, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_run_is_listed_as_aligned_columns(tmp_path: Path) -> None:
    counted(tmp_path, 2, dims=("batch", "feature"))
    Recording(tmp_path, 2).take(np.zeros(3, "<f4"), key=SeriesKey("grads", "", "grad", "eval")).left()
    assert run(tmp_path).splitlines() == [
        f"{tmp_path}  epochs 0-1 complete, 2 unsealed",
        "",
        "series            captures  dtype    shape                 bytes  epochs",
        "acts/fc1:output          8  float32  [batch=2, feature=3]  192 B  0-1",
        "grads/:grad@eval         1  float32  [3]                    12 B  2",
    ]


def test_every_listed_word_can_be_shown(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros(2, "<f4")).take(np.ones(2, "<f2"), step=1).take(
        np.zeros(1, "<f4"), key=SeriesKey("acts", "", "output", "eval")
    ).sealed()
    words = [line.split()[0] for line in run(tmp_path).splitlines()[3:]]
    assert words == ["acts/:output@eval", "acts/fc1:output~float16", "acts/fc1:output~float32"]
    for word in words:
        assert CliRunner().invoke(show, [str(tmp_path), word], catch_exceptions=False).stdout.startswith(word)


def test_a_run_is_listed_from_its_ledger_without_numpy_and_h5py(tmp_path: Path) -> None:
    counted(tmp_path, 2)
    (tmp_path / "run.json").write_text("{}")
    program = (
        "import sys\nfrom probes.cli import cli\ncli(['ls', sys.argv[1]], standalone_mode=False)\n"
        "assert not {'numpy', 'h5py', 'torch'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, text=True)
    assert "acts/fc1:output" in done.stdout


def test_json_states_the_same_as_data(tmp_path: Path) -> None:
    found = json.loads(run(counted(tmp_path, 2), "--json"))
    assert found["epochs"] == [{"epoch": 0, "state": "complete"}, {"epoch": 1, "state": "complete"}]
    (series,) = found["series"]
    assert (series["series"], series["captures"], series["shape"], series["epochs"]) == ("acts/fc1:output", 8, [2, 3], [0, 1])


def test_epochs_can_be_chosen(tmp_path: Path) -> None:
    counted(tmp_path, 5)
    assert run(tmp_path, "--epoch", "1:3").splitlines()[3].split()[1] == "8"
    assert run(tmp_path, "--epoch", "0,4", "--phase", "eval").splitlines()[2] == "nothing was captured in this selection"


@pytest.mark.parametrize("text", ["x", "1:2:3:4", "-1", "1:5:0", "", "1,"])
def test_a_value_that_is_not_an_epoch_is_refused(text: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(ls, [str(tmp_path), "--epoch", text])
    assert done.exit_code == 2
    assert f"`{text}` is not a number (3)" in done.stderr


def test_attempts_are_listed_on_request(tmp_path: Path) -> None:
    Recording(tmp_path, 0).take(np.zeros(1, "<f4")).sealed(complete=False)
    Recording(tmp_path, 0, attempt=2).take(np.ones(1, "<f4")).sealed()
    assert run(tmp_path, "--attempts").splitlines()[2:] == [
        "epoch  rank  attempt  state       shown  files",
        "    0     0        1  incomplete  no     epoch-0000.h5",
        "    0     0        2  complete    yes    epoch-0000.a2.h5",
    ]


def test_an_epoch_or_a_rank_that_the_run_does_not_have_is_an_error(tmp_path: Path) -> None:
    counted(tmp_path, 2)
    for words in (["--epoch", "9"], ["--rank", "1"], ["--epoch", "0,9"], ["--epoch", "9", "--attempts"], ["--epoch", "2:9", "--json"]):
        done = CliRunner().invoke(ls, [str(tmp_path), *words])
        assert isinstance(done.exception, SeriesNotFound), words
        assert "of its files: 0" in str(done.exception)
        assert done.stdout == ""


def test_attempts_of_one_epoch_are_listed(tmp_path: Path) -> None:
    counted(tmp_path, 3)
    assert [line.split()[0] for line in run(tmp_path, "--attempts", "--epoch", "1:").splitlines()[3:]] == ["1", "2"]
    done = CliRunner().invoke(ls, [str(tmp_path), "--attempts", "--phase", "eval"])
    assert "leave out `--phase`" in str(done.exception)


@pytest.mark.parametrize("words", [["--epoch", "0"], ["--rank", "0"], ["--phase", "eval"], ["--attempts"]])
def test_options_of_one_run_are_refused_without_a_run(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counted(tmp_path / "runs" / "a", 1)
    done = CliRunner().invoke(ls, words)
    assert isinstance(done.exception, UsageError)
    assert f"`{words[0]}` is for one run; name it" in str(done.exception)


def test_without_a_run_the_runs_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run() == "no runs in ./runs; `probes demo` makes one\n"
    counted(tmp_path / "runs" / "digits" / "b", 2)
    Recording(tmp_path / "runs" / "digits" / "a").take(np.zeros(1)).sealed(complete=False)
    assert run().splitlines() == ["run            epochs", "runs/digits/a  epoch 0 incomplete", "runs/digits/b  epochs 0-1 complete"]
    assert json.loads(run("--json"))[1]["run"] == "runs/digits/b"


def test_runs_that_cannot_be_read_are_named_and_the_others_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        counted(tmp_path / "runs" / name, 1)
    with (tmp_path / "runs" / "b" / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"x"\n')
    done = CliRunner().invoke(ls, [])
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["run", "runs/a", "runs/c"]
    assert '"runs/b/ledger.jsonl": line 2 is not a ledger line' in done.stderr
    assert done.exit_code == 1
    done = CliRunner().invoke(ls, ["--json"])
    assert [one["run"] for one in json.loads(done.stdout)] == ["runs/a", "runs/c"]


@pytest.mark.parametrize("command", ["ls", "show", "export"])
def test_reading_commands_never_import_torch(command: str, tmp_path: Path) -> None:
    counted(tmp_path, 1)
    program = (
        f"import sys\nfrom probes.commands.{command} import {command}\n"
        f"{command}(sys.argv[1:], standalone_mode=False)\nassert 'torch' not in sys.modules"
    )
    arguments = [str(tmp_path), *(["acts"] if command == "show" else [])]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (1 << 60, "1048576.0 TiB")],
)
def test_sizes_have_the_units_of_the_spec(count: int, text: str) -> None:
    assert size(count) == text


def test_numbers_in_a_row_are_written_as_spans() -> None:
    assert spans([]) == "none"
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, 1]) == "▄▄"
    assert sparkline([0, float("nan"), 7]) == "▁·█"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(1000)))) == 60
    assert sparkline([1e308, -1e308]) == "█▁"


def test_columns_are_right_aligned_on_request() -> None:
    assert table(("a", "b"), [("xx", "1"), ("y", "22")], right=("b",)).splitlines()[1:] == ["xx   1", "y   22"]


def test_a_run_with_edits_is_listed_as_edited(tmp_path: Path) -> None:
    edit = {"hook": "forward", "modules": ["0"], "edit": {"kind": "scale", "by": 2.0}}
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    spec = {"version": 1, "allow_edits": True, "probes": {"double": edit, "acts": {"hook": "forward", "modules": ["0"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as attached:
        for _ in attached.steps([0]):
            model(torch.ones(1, 2))
    assert run(tmp_path / "run").splitlines()[1] == "edited: `double` changed values of the model"
    assert json.loads(run(tmp_path / "run", "--json"))["edits"] == ["double"]
