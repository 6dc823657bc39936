"""How a process with probes ends: soon, and with every committed step kept."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

import probes
from probes.run_directory.recover import recover
from tests.processes.running import sealers
from tests.warm import programs

PROGRAM = """
import os, signal, sys, time
import torch
from torch import nn
import probes

how, out = sys.argv[1:]
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
spec = {"version": 1, "name": "r", "probes": {"p": {"modules": ["0"], "values": ["output"]}}}
with probes.attach(model, spec, out=out) as run:
    for epoch in run.epochs(3):
        for index, x in enumerate(run.steps([torch.ones(3, 4)] * 10)):
            model(x)
            if (epoch, index) != (1, 4):
                continue
            print("now", flush=True)
            if how == "exit":
                sys.exit(7)
            if how == "_exit":
                os._exit(7)
            if how == "error":
                raise KeyError("mine")
            time.sleep(60)
"""
CODES = {
    "exit": 7,
    "_exit": 7,
    "error": 1,
    "SIGTERM": -signal.SIGTERM,
    "SIGINT": -signal.SIGINT,
    "SIGKILL": -signal.SIGKILL,
    "SIGHUP": -signal.SIGHUP,
}


def at_its_place(how: str, folder: Path) -> programs.Program:
    """The program, when it has come to the step in which it ends."""
    said, says = os.pipe()
    program = programs.start("-c", PROGRAM, how, folder / "r", stdout=says)
    os.close(says)
    with os.fdopen(said, "rb") as lines:
        assert lines.readline() == b"now\n"
    return program


@pytest.mark.parametrize("how", CODES)
def test_a_program_ends_within_five_seconds_and_keeps_committed_steps(tmp_path: Path, how: str) -> None:
    program = at_its_place(how, tmp_path)
    if how.startswith("SIG"):
        program.send_signal(signal.Signals[how])
    assert program.wait(20) == CODES[how]
    recover(tmp_path / "r")
    found = probes.open(tmp_path / "r")
    assert found["p", "0"].clocks[["epoch", "step"]].tolist() == [(0, step) for step in range(10)] + [(1, step) for step in range(4)]
    assert found.state == {0: "complete", 1: "incomplete"}
    assert probes.verify(tmp_path / "r").ok


def test_a_sealer_that_hangs_does_not_delay_an_interrupted_program(tmp_path: Path) -> None:
    program = at_its_place("SIGINT", tmp_path)
    hanging = sealers(tmp_path / "r")
    for sealer in hanging:
        os.kill(sealer, signal.SIGSTOP)
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == -signal.SIGINT
    for sealer in hanging:
        os.kill(sealer, signal.SIGCONT)
    assert len(hanging) == 1
    recover(tmp_path / "r")
    assert probes.open(tmp_path / "r").state == {0: "complete", 1: "incomplete"}


CLOSES_FILES = """
import os, sys
import torch
from torch import nn
import probes

out, own = sys.argv[1:]
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
sinks = {"default": {"kind": "hdf5"}, "log": {"kind": "jsonl"}}
spec = {"version": 1, "name": "r", "sinks": sinks, "probes": {"p": {
    "modules": ["0"], "values": ["output"], "sinks": ["default", "log"], "transforms": [{"kind": "norm"}]}}}
with probes.attach(model, spec, out=out) as run:
    for epoch in run.epochs(3):
        for index, x in enumerate(run.steps([torch.ones(3, 4)] * 10)):
            model(x)
            if (epoch, index) == (1, 4):
                os.closerange(3, 256)  # as programs do that want to be daemons
                files = [open(os.path.join(own, str(number)), "w") for number in range(40)]
for file in files:
    print("whole", file=file)
    file.close()
print(run.summary().files)
"""


def test_a_program_that_closes_all_files_continues_and_its_own_files_hold_what_it_wrote(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    done = programs.run("-c", CLOSES_FILES, str(tmp_path / "r"), str(own))
    assert [file.read_text() for file in own.iterdir()] == ["whole\n"] * 40
    assert "other code of this process has closed all files" in done.stderr
    assert "internal error" not in done.stderr
    recover(tmp_path / "r")
    assert probes.open(tmp_path / "r").state == {0: "complete", 1: "incomplete"}
    assert len(probes.open(tmp_path / "r")["p", "0"]) == 14
    assert probes.verify(tmp_path / "r").ok


def test_a_run_writes_nothing_into_a_directory_that_was_removed_and_made_again_by_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Linear(2, 2)
    spec = {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}}
    with probes.attach(model, spec, out=tmp_path / "r") as former:
        with former.epoch(0), former.step():
            model(torch.ones(1, 2))
        former.engine.writer.recording.drain()
        shutil.rmtree(tmp_path / "r")
        other = torch.nn.Linear(2, 2)
        with probes.attach(other, spec, out=tmp_path / "r") as later:
            with later.epoch(0), later.step():
                other(torch.ones(1, 2))
            with former.epoch(1), former.step():
                model(torch.ones(1, 2))
            with later.epoch(1), later.step():
                other(torch.ones(1, 2))
    assert f'this run no longer owns "{tmp_path / "r"}"' in capsys.readouterr().err
    found = probes.open(tmp_path / "r")
    assert (found.state, len(found["p", ""])) == ({0: "complete", 1: "complete"}, 2)
    assert probes.verify(tmp_path / "r").ok


@pytest.mark.parametrize("moment", ["before", "in"])
def test_a_run_in_a_working_directory_that_was_deleted_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    model = torch.nn.Linear(2, 2)
    if moment == "before":
        gone.rmdir()
    with probes.attach(model, {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}}, out=tmp_path / "r") as run:
        with run.epoch(0), run.step():
            model(torch.ones(1, 2))
        if moment == "in":
            gone.rmdir()
    assert str(tmp_path / "r") in str(run.summary())
    assert probes.verify(tmp_path / "r").ok


def test_a_summary_in_the_run_counts_what_is_still_being_sealed(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    spec = {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        for _ in run.epochs(2):
            with run.step():
                model(torch.ones(1, 2))
        early = run.summary()
    assert len(early.files) + early.being_sealed == 2
    assert ("still being sealed, and the ledger head will change" in str(early)) == (early.being_sealed > 0)
    last = run.summary()
    assert (len(last.files), last.being_sealed) == (2, 0)
    assert "still being sealed" not in str(last)
