"""How a process with probes ends: soon, and with every committed step kept."""

from __future__ import annotations

import os
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
