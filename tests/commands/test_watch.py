from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from probes.clock import SeriesKey
from probes.commands.upload import upload
from probes.commands.watch import watch
from tests.reader.recorded import Recording, counted
from tests.warm import programs

SCRIPT = """
import time, torch
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    for x in torch.utils.data.DataLoader(torch.ones(8, 3), batch_size=2):
        model(x).sum().backward()
        optimizer.step()
        time.sleep(0.15)
"""
SPEC = "version: 1\nprobes:\n  acts: {modules: [''], values: [output], transforms: [{kind: stats}]}\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(watch, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.parametrize("command", [watch, upload])
def test_an_interval_that_is_not_a_number_is_refused(command: click.Command, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path), *(["s3://bucket/a"] if command is upload else []), "--interval", "nan"])
    assert (done.exit_code, "nan is not in the range" in done.stderr) == (2, True)


def test_a_finished_run_is_shown_once_with_its_last_numbers(tmp_path: Path) -> None:
    done = run(counted(tmp_path, 2), "--once")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0] == f"{tmp_path}  finished"
    assert lines[1].startswith("8 captures  ")
    assert lines[1].endswith("  sealed files: 2 complete")
    assert lines[-1].split() == ["acts/fc1:output", "[2,", "3]", "mean", "13", "▁▂▂▃▆▇▇█"]


def test_into_a_pipe_goes_a_line_for_each_change(tmp_path: Path) -> None:
    done = run(counted(tmp_path, 2))
    assert done.exit_code == 0
    (line,) = done.stdout.splitlines()
    assert line.startswith("finished  8 captures")


def test_json_is_one_object_for_each_look(tmp_path: Path) -> None:
    (line,) = run(counted(tmp_path, 1), "--once", "--json").stdout.splitlines()
    found = json.loads(line)
    assert (found["state"], found["captures"], found["series"][0]["numbers"]) == ("finished", 4, [0, 1, 2, 3])


def test_a_killed_run_ends_with_1_and_the_way_to_recover_it(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros(1, "<f4")).left()
    done = run(tmp_path, "--interval", 0.1)
    assert done.exit_code == 1
    shown = run(tmp_path, "--once")
    assert shown.exit_code == 1
    assert f'`probes recover "{tmp_path}"`' in shown.stdout


def test_series_are_chosen_by_a_pattern(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for layer in range(40):
        recording.take(np.zeros(1, "<f4"), key=SeriesKey("acts", f"layer.{layer}", "output", "train"))
    recording.sealed()
    assert run(tmp_path, "--once", "--series", "acts/layer.3").stdout.count("acts/") == 1
    assert run(tmp_path, "--once", "--series", "acts/layer.*").stdout.count("acts/") == 40
    assert "no series matches the patterns of `--series`" in run(tmp_path, "--once", "--series", "nope").stdout
    found = json.loads(run(tmp_path, "--once", "--json", "--series", "acts/layer.3", "--series", "acts/layer.1?").stdout)
    assert [one["series"] for one in found["series"]] == [f"acts/layer.{layer}:output" for layer in (*range(10, 20), 3)]


def test_hostile_names_stay_on_their_line(tmp_path: Path) -> None:
    name = "\x1b[2J<script>" + "x" * 3000
    Recording(tmp_path).take(np.zeros(1, "<f4"), key=SeriesKey("acts", name, "output", "train")).sealed()
    text = run(tmp_path, "--once").stdout
    assert "\x1b" not in text
    assert len(text.splitlines()) == 6


def test_a_directory_that_cannot_be_followed_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, words in (
        ([], 'there is no run in "runs"'),
        (["nothing", "--once"], 'there is no run in "nothing"'),
        ([counted(tmp_path / "a", 1) / "epoch-0000.h5"], "follows a run directory"),
        ([tmp_path / "a", "--once", "--series", "acts/{a"], "is not a pattern"),
    ):
        done = CliRunner().invoke(watch, [str(argument) for argument in arguments])
        assert words in str(done.exception), done.output


def test_a_real_run_of_another_process_is_followed_on_a_terminal_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "probe.yaml").write_text(SPEC)
    words = [sys.executable, "-m", "probes"]
    environment = {**os.environ, "PATH": os.pathsep.join([str(programs.commands()), os.environ["PATH"]]), "TERM": "xterm"}
    main, terminal = pty.openpty()
    watching = subprocess.Popen(
        [*words, "watch", "run", "--interval", "0.2"], cwd=tmp_path, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    running = subprocess.run(
        [*words, "run", "--out", "run", "probe.yaml", "train.py"], cwd=tmp_path, env=environment, check=False, capture_output=True
    )
    if running.returncode:
        watching.kill()
    assert running.returncode == 0, running.stderr
    seen = _shown(main, watching)
    assert watching.wait(20) == 0
    assert "waiting for the first file of the run" in seen
    assert "train step 3" in seen
    assert "captures/s" in seen
    assert seen.endswith("\x1b[?25h\x1b[?1049l" + seen.rpartition("\x1b[?1049l")[2])
    assert "finished" in seen.rpartition("\x1b[?1049l")[2]
    assert "sealed files: 2 complete" in seen


def test_ctrl_c_leaves_the_terminal_as_it_was_with_code_0(tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    watching = subprocess.Popen(
        [sys.executable, "-m", "probes", "watch", str(tmp_path / "later")], stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    seen = os.read(main, 1 << 16)
    time.sleep(0.2)
    watching.send_signal(signal.SIGINT)
    seen += _shown(main, watching).encode()
    assert watching.wait(20) == 0
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1


def _shown(main: int, process: subprocess.Popen[bytes]) -> str:
    """What a program has written on its terminal until it ended."""
    found = b""
    while True:
        try:
            found += os.read(main, 1 << 16)
        except OSError:  # the other end is closed
            os.close(main)
            return found.decode()
