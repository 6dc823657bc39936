from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import probes
from probes.runner.attach import attach

SPEC = {"version": 1, "name": "t", "probes": {"inputs": {"hook": "pre-forward", "modules": [""], "values": ["input.input"]}}}


def test_what_the_root_is_called_with_is_captured_from_the_first_call_of_every_epoch(tmp_path: Path) -> None:
    """Around a script an epoch ends, and the next one opens, within the root's own call."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, SPEC, out=tmp_path / "run", automatic=True) as run:
        for number in range(6):
            if number in (2, 4):
                enters = run.entry.on_enter
                run.entry.on_enter = lambda root, enters=enters: (run.timeline.pass_begins(), enters(root))  # type: ignore[misc]  # `enters` is bound here and now
            model(torch.full((1, 2), float(number))).sum().backward()
            optimizer.step()
            run.timeline.pulled()
            if number in (2, 4):
                run.entry.on_enter = enters
    series = probes.open(tmp_path / "run")["inputs", ""]
    assert [(capture.clock.epoch, capture.clock.step, capture.value[0, 0]) for capture in series] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 2),
        (1, 1, 3),
        (2, 0, 4),
        (2, 1, 5),
    ]


def test_after_the_run_the_model_carries_no_hook(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with attach(model, SPEC, out=tmp_path / "run") as run, run.epoch(0):
        model(torch.ones(1, 2))
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
