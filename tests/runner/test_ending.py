"""How a process with probes ends: soon, and with every committed step kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import probes
from probes.run_directory.recover import recover

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


@pytest.mark.parametrize("how", CODES)
def test_a_program_ends_within_five_seconds_and_keeps_what_was_committed(tmp_path: Path, how: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, how, str(tmp_path / "r")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert program.stdout is not None
    assert program.stdout.readline() == b"now\n"
    if how.startswith("SIG"):
        program.send_signal(signal.Signals[how])
    assert program.wait(20) == CODES[how]
    program.stdout.close()
    recover(tmp_path / "r")
    found = probes.open(tmp_path / "r")
    assert found["p", "0"].clocks[["epoch", "step"]].tolist() == [(0, step) for step in range(10)] + [(1, step) for step in range(4)]
    assert found.state == {0: "complete", 1: "incomplete"}
    assert probes.verify(tmp_path / "r").ok


def test_a_sealer_that_hangs_does_not_keep_an_interrupted_program(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "SIGINT", str(tmp_path / "r")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"now\n"
    sealers = subprocess.run(["pgrep", "-P", str(program.pid)], capture_output=True, text=True, check=True).stdout.split()
    for sealer in sealers:
        subprocess.run(["kill", "-STOP", sealer], check=True)
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == -signal.SIGINT
    for sealer in sealers:
        subprocess.run(["kill", "-CONT", sealer], check=True)
    program.stdout.close()
    assert sealers
    recover(tmp_path / "r")
    assert probes.open(tmp_path / "r").state == {0: "complete", 1: "incomplete"}
