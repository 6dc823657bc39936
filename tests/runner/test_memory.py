"""Memory stays flat: over many steps with probes attached once, and over many runs."""

from __future__ import annotations

import gc
import resource
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import nn

import probes
from probes.errors import RunError
from probes.hooks.backward import GradHook
from probes.hooks.capture.run_state import ModuleHook
from probes.runner.run import Run

X = torch.ones(2, 4)


def resident() -> int:
    """KiB of memory that the process holds now."""
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def ours_alive() -> int:
    gc.collect()
    return sum(issubclass(type(thing), ModuleHook | GradHook | Run) for thing in gc.get_objects())


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))


def cycles(count: int, path: Path) -> list[int]:
    """Resident memory over `count` times attaching, registering every hook, and detaching on one model; no step is run.

    Where nothing was captured no file is made, and the child that makes them is not started; `test_500_whole_runs...` has both.
    """
    model = net()
    spec = {"version": 1, "probes": {"p": {"modules": ["*"], "values": ["input", "output", "grad_output"]}}}
    seen = []
    for index in range(count):
        with suppress(RunError), probes.attach(model, spec, out=path) as run:
            run.engine.live.reset_counters()
            run.engine.live.register(0)
            assert model[0]._forward_hooks
        assert not model[0]._forward_hooks
        shutil.rmtree(path)
        if index % (count // 10) == 0:
            gc.collect()
            seen.append(resident())
    return seen


def steps(count: int, path: Path) -> tuple[list[int], int]:
    """Resident memory over `count` steps of one run, half of whose graphs never see a backward."""
    model = net()
    spec = {
        "version": 1,
        "probes": {
            "p": {"modules": ["*"], "values": ["input", "output", "grad_output"], "when": {"steps": {"every": 10}}},
            "w": {"hook": "tensor", "tensors": ["0.weight"], "when": {"steps": {"every": 10}}, "expect": {"fires": "some"}},
        },
    }
    seen = []
    most = 0
    with probes.attach(model, spec, out=path) as run:
        for index, x in enumerate(run.steps([X] * count)):
            loss = model(x).sum()
            if index % 20 == 0 or index % 10:
                loss.backward()
            if index % (count // 5) == 0:
                most = max(most, ours_alive())
                seen.append(resident())
    return seen, most


def grown(seen: list[int]) -> int:
    """KiB by which memory grew after its first third."""
    return max(seen[-3:]) - max(seen[: len(seen) // 3])


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where the system has one: there a run's directory costs 7 ms instead of 40."""
    place = Path("/dev/shm")
    with TemporaryDirectory(dir=place if place.is_dir() else tmp_path) as folder:
        yield Path(folder)


def test_20_attachments_leave_nothing(memory_disk: Path) -> None:
    cycles(10, memory_disk / "run")
    before = ours_alive()
    cycles(20, memory_disk / "run")
    assert ours_alive() == before


def test_steps_leave_no_hook_alive(tmp_path: Path) -> None:
    before = ours_alive()
    _, most = steps(200, tmp_path / "run")
    assert most < before + 20
    assert ours_alive() <= before + 1


@pytest.mark.torture
def test_20_000_attachments_leave_memory_flat(memory_disk: Path) -> None:
    cycles(100, memory_disk / "run")
    before = ours_alive()
    seen = cycles(20_000, memory_disk / "run")
    assert ours_alive() == before
    assert grown(seen) < 8192, seen  # steps of the allocator; 1 KiB kept of each would be 13 MiB


@pytest.mark.torture
def test_100_000_steps_leave_memory_flat(tmp_path: Path) -> None:
    seen, most = steps(100_000, tmp_path / "run")
    assert most < 20
    assert grown(seen) < 4096, seen
    shutil.rmtree(tmp_path / "run")


@pytest.mark.torture
def test_500_whole_runs_leave_memory_flat(tmp_path: Path) -> None:
    model = net()
    seen = []
    for index in range(500):
        with probes.attach(model, {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["*"]}}}, out=tmp_path / "run") as run:
            for x in run.steps([X]):
                model(x)
        shutil.rmtree(tmp_path / "run")
        if index % 50 == 0:
            gc.collect()
            seen.append(resident())
    assert grown(seen) < 4096, seen
