"""Small trainings whose captures go to a tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import probes

STATS = ["count", "mean", "std", "min", "max", "l2", "zeros", "nan", "+inf", "-inf"]


def trained(out: Path, sink: dict[str, Any], epochs: int = 2) -> Any:
    """A run of two epochs of three steps, with infinities, two phases and a histogram."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    spec = {
        "version": 1,
        "name": "digits",
        "sinks": {"captures": {"kind": "hdf5"}, "tracker": sink},
        "defaults": {"when": {"phases": ["train", "eval"]}},
        "probes": {
            "size": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "stats"}]},
            "whole": {"hook": "forward", "modules": [""], "transforms": [{"kind": "norm"}]},
            "counts": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "histogram", "bins": 4, "range": [-1, 1]}]},
        },
    }
    with probes.attach(model, spec, out=out) as run:
        for _ in run.epochs(epochs):
            for step in run.steps(range(3)):
                model(torch.full((5, 4), float("inf") if step == 2 else 0.5 + step))
            with run.phase("eval"), torch.no_grad():
                model.eval()(torch.ones(2, 4))
                model.train()
    return run


def expected(out: Path) -> dict[str, list[tuple[int, float]]]:
    """(global_step, number) by metric, from the capture files; without those of the histogram."""
    found: dict[str, list[tuple[int, float]]] = {}
    for series in probes.open(out).series:
        if series.key.probe != "counts":
            before = [] if series.key.phase == "train" else [series.key.phase]
            base = "/".join([*before, series.key.probe, series.key.target or "_root_", series.key.leaf])
            for clock, value in zip(series.clocks, series.numpy().reshape(len(series), -1), strict=True):
                for name, number in zip([f"{base}/{stat}" for stat in STATS] if value.size > 1 else [base], value, strict=True):
                    found.setdefault(name, []).append((int(clock["global_step"]), float(number)))
    return found
