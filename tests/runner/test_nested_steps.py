"""Steps within steps whose captures do not fit in the buffer: each step keeps its own, also if another one ends or fails before it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import Tensor, nn

import probes

WIDE = 25 * 1024  # 20 captures of 100 KiB are more than the buffer holds


class Layers(nn.Module):
    """Twenty layers, after which a forward may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(20))

    def forward(self, x: Tensor, fail: bool = False) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        if fail:
            raise ValueError
        return x


def stored(out: Path) -> dict[tuple[str, float], int]:
    """How many captures there are of each phase and value, read with h5py alone."""
    found: dict[tuple[str, float], int] = {}
    with h5py.File(out / "epoch-0000.h5") as file:
        for group in file["captures/acts"].values():
            for values in group["values"][...]:
                assert (values == values[0]).all()
                key = group.attrs["phase"].decode(), float(values[0])
                found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize(
    ("inner_fails", "outer_fails", "expected"),
    [
        (True, False, {("train", 0.0): 20, ("train", 1.0): 20, ("train", 2.0): 20}),
        (False, True, {("train", 0.0): 20, ("eval", 100.0): 20, ("train", 2.0): 20}),
        (False, False, {("train", 0.0): 20, ("train", 1.0): 20, ("eval", 100.0): 20, ("train", 2.0): 20}),
    ],
    ids=["inner", "outer", "none"],
)
def test_a_step_within_a_step_has_the_captures_that_it_made(
    tmp_path: Path, inner_fails: bool, outer_fails: bool, expected: dict[tuple[str, float], int]
) -> None:
    model = Layers()
    spec: dict[str, Any] = {
        "version": 1,
        "probes": {"acts": {"hook": "forward", "modules": ["layers.*"], "when": {"phases": ["train", "eval"]}}},
    }
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.epoch(0):
        with run.step():
            model(torch.full((WIDE,), 0.0))
        with suppress(ValueError), run.step():
            model(torch.full((WIDE,), 1.0))
            with suppress(ValueError), run.phase("eval"):
                model(torch.full((WIDE,), 100.0), fail=inner_fails)
            if outer_fails:
                raise ValueError
        with run.step():
            model(torch.full((WIDE,), 2.0))
    assert stored(tmp_path / "run") == expected
    assert probes.verify(tmp_path / "run").ok
