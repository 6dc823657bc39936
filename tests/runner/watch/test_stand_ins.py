"""Methods of other packages that a run replaces look like those that they stand in for: other tools read their names and frames."""

from __future__ import annotations

import inspect
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

import probes
from probes.provenance.child_processes import process_starts

SPEC = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}
REPLACED = [
    (DataLoader, "__iter__"),
    (_BaseDataLoaderIter, "__next__"),
    (torch.amp.GradScaler, "scale"),
    (torch.amp.GradScaler, "step"),
    (torch.amp.GradScaler, "update"),
]


def look(function: Any) -> tuple[str, str, str, str | None]:
    return function.__qualname__, function.__module__, str(inspect.signature(function)), function.__doc__


@pytest.mark.parametrize(("kind", "name"), REPLACED)
def test_a_replaced_method_has_the_name_and_the_signature_of_the_original(kind: type, name: str, tmp_path: Path) -> None:
    original, model = vars(kind)[name], nn.Sequential(nn.Linear(2, 1))
    with probes.attach(model, SPEC, out=tmp_path / "run") as run:
        ours = vars(kind)[name]
        assert ours is not original
        assert look(ours) == look(original)
        for x in run.steps([torch.ones(1, 2)]):
            model(x)
    assert vars(kind)[name] is original


def test_the_start_of_a_process_has_the_name_and_the_signature_of_the_original() -> None:
    original = BaseProcess.start

    def listener(_: BaseProcess) -> Any:
        raise AssertionError("no process is started here")

    process_starts.add(listener)
    try:
        assert BaseProcess.start is not original
        assert look(BaseProcess.start) == look(original)
    finally:
        process_starts.remove(listener)


def test_the_profiler_of_torch_sees_the_modules_of_a_run(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    with probes.attach(model, SPEC, out=tmp_path / "run") as run:
        assert inspect.signature(nn.Module.__call__).parameters["self"]
        with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True) as profiler:
            for x in run.steps([torch.ones(1, 2)] * 3):
                model(x)
    assert any("Linear" in event.name for event in profiler.events())
    assert len(probes.open(tmp_path / "run")["p", "0"].numpy()) == 3
