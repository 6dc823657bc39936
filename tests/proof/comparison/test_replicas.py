"""Replicas of a launch that went apart: the first step, the ranks and the parameter are named."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.proof.comparison.replicas import replica_findings
from tests.reader.recorded import Recording
from tests.warm import programs

PROGRAM = """
import os, sys
import torch
from torch import nn
import probes

rank, out, apart = int(os.environ["RANK"]), *sys.argv[1:]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
spec = {"version": 1, "name": "r", "probes": {
    "w": {"hook": "tensor", "tensors": ["**"], "values": ["data"]},
    "g": {"hook": "tensor", "tensors": ["1.bias"], "stage": "increment"},
}}
with probes.attach(model, spec, out=out) as run:
    for step, x in enumerate(run.steps(list(torch.randn(4, 3, 4)))):
        if apart == f"{step}.{rank}":
            with torch.no_grad():
                model[1].bias[1] += 1e-3
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


def launch(out: Path, apart: str) -> None:
    about = {**os.environ, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job-1"}
    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(programs.run, "-c", PROGRAM, out, apart, env={**about, "RANK": str(rank)}) for rank in range(2)]
        assert [rank.result().returncode for rank in ranks] == [0, 0]


@pytest.mark.torture
def test_the_first_step_rank_and_parameter_that_diverge_are_named(tmp_path: Path) -> None:
    launch(tmp_path / "r", "2.1")
    assert probes.verify(tmp_path / "r").ok
    found = [one for one in probes.verify(tmp_path / "r", replicas=True).findings if not one.note]
    assert {(one.code, one.steps) for one in found} == {("replicas-differ", (2, 2))}
    words = "`data` of `1.bias` (probe `w`) on rank 1 differs from rank 0 for the first time in epoch 0, step 2"
    assert words in [one.message for one in found]
    assert not [one for one in found if "`grad`" in one.message], "what a rank has before gradients are reduced may differ"


@pytest.mark.torture
def test_replicas_that_stay_together_verify(tmp_path: Path) -> None:
    launch(tmp_path / "r", "never")
    assert probes.verify(tmp_path / "r", replicas=True).ok


def test_ranks_are_compared_in_each_attempt_of_a_joined_epoch(tmp_path: Path) -> None:
    for rank in (0, 1):
        for attempt, first in ((1, 0), (2, 2)):
            recording = Recording(tmp_path, 0, attempt=attempt, rank=rank, head={"first_step": first} if first else {})
            for step in (first, first + 1):
                recording.take(np.full(2, rank if step == 3 else 7, "<f4"), step=step, attrs={"hook": "tensor"})
            recording.sealed(complete=False)
    assert [one.steps for one in replica_findings(tmp_path)] == [(3, 3)]
