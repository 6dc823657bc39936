from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import probes
from probes.errors import Stopped
from probes.integrations.followed_epochs import FollowedEpochs

SPEC = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["0"]}}}
STOP = {**SPEC, "rules": {"r": {"probe": "acts", "above": 1, "then": "stop"}}}


def net() -> nn.Module:
    return nn.Sequential(nn.Identity())


def test_a_trainer_that_begins_again_ends_the_run_that_is_open(tmp_path: Path) -> None:
    """A trainer that runs out of memory may try a smaller batch without reporting an end."""
    model, epochs = net(), FollowedEpochs(SPEC, tmp_path / "run", {"resume": True})
    for value in (1.0, 2.0):
        epochs.begin(model)
        epochs.enter(0)
        model(torch.tensor(value))
    epochs.end()
    assert not model[0]._forward_hooks  # type: ignore[index]  # a Sequential
    assert probes.open(tmp_path / "run")["acts", "0"].numpy().tolist() == [2.0]
    assert probes.verify(tmp_path / "run").ok


def test_a_rule_that_stops_at_the_end_of_the_training_frees_the_directory(tmp_path: Path) -> None:
    model, epochs = net(), FollowedEpochs(STOP, tmp_path / "run", {})
    epochs.begin(model)
    epochs.enter(0)
    model(torch.tensor(5.0))
    with pytest.raises(Stopped):
        epochs.end()
    assert probes.open(tmp_path / "run").state == {0: "complete"}
    with probes.attach(model, STOP, out=tmp_path / "run", resume=True) as run, run.epoch(1):
        model(torch.tensor(0.0))
    assert probes.open(tmp_path / "run")["acts", "0"].numpy().tolist() == [5.0, 0.0]
    assert probes.verify(tmp_path / "run").ok
