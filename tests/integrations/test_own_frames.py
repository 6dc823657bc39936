"""A mistake of a user is one error, in which no frames from inside this package come between the trainer and the message."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

from probes.errors import PlanError, ProbesError, RunError, StorageError
from probes.integrations.followed_epochs import FollowedEpochs

GOOD = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["0"]}}}


def used_directory(out: Path) -> None:
    (out / "notes.txt").write_text("mine")
    FollowedEpochs(GOOD, out, {}).begin(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def wrong_path(out: Path) -> None:
    wrong = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["nowhere"]}}}
    FollowedEpochs(wrong, out, {}).begin(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def captured_nothing(out: Path) -> None:
    epochs = FollowedEpochs(GOOD, out, {})
    epochs.begin(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    epochs.enter(0)
    epochs.end()


@pytest.mark.parametrize(("mistake", "kind"), [(used_directory, StorageError), (wrong_path, PlanError), (captured_nothing, RunError)])
def test_a_mistake_is_one_error_without_inner_frames(tmp_path: Path, mistake: Any, kind: type[ProbesError]) -> None:
    with pytest.raises(kind) as raised:
        mistake(tmp_path)
    frames = [Path(frame.filename).name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert frames == ["test_own_frames.py", "test_own_frames.py", "own_frames.py"]
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
