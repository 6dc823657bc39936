from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import probes
from probes.runner.run_loops import plain_ids


@pytest.mark.parametrize(
    ("ids", "stored"),
    [
        ([3, 4], [3, 4]),
        (torch.tensor([3, 4]), [3, 4]),
        (np.arange(2), [0, 1]),
        ([torch.tensor(3), np.int64(4)], [3, 4]),
        (["a", 2**70, 1.5, True, ("b", 3)], ["a", 2**70, "1.5", "True", "('b', 3)"]),
        (torch.tensor(7), [7]),
        (["a\udcff.png", "\ud800", "b\0", "\0\0"], ["a\\udcff.png", "\\ud800", "b\\x00", "\\x00\\x00"]),
        ((), []),
    ],
    ids=range(8),
)
def test_ids_are_numbers_and_texts(ids: Any, stored: list[Any]) -> None:
    found = plain_ids(ids)
    assert found == stored
    assert {type(one) for one in found} <= {int, str}


@pytest.mark.parametrize("ids", [torch.tensor([4, 5]), np.arange(4, 6), [4, "a", 2**70, 1.5]], ids=["tensor", "array", "mixed"])
def test_ids_of_every_kind_are_read_back(ids: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    spec = {"version": 1, "probes": {"acts": {"modules": ["0"], "values": ["output"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.step(ids=ids):
        model(torch.ones(len(ids), 2))
    found = probes.open(tmp_path / "run")["acts", "0"].ids.tolist()
    assert found == ([4, 5] if len(ids) == 2 else ["4", "a", str(2**70), "1.5"])
