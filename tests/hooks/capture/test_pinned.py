"""Captures on an accelerator, with one that is made of host memory and does its copies as late as it may."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import RunError
from probes.hooks.capture.pinned import SMALL, PinnedBuffer


class Slow:
    """A device that copies nothing before it is waited for."""

    def __init__(self) -> None:
        self.queue: list[tuple[Tensor, Tensor]] = []
        self.copies = 0
        self.waits = 0

    def host(self, nbytes: int) -> Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8)

    def copy(self, target: Tensor, source: Tensor) -> None:
        self.queue.append((target, source.clone()))  # a stream keeps the order: what comes later does not reach the copy
        self.copies += 1

    def mark(self, source: Tensor) -> Callable[[], None]:
        return self.finish

    def finish(self) -> None:
        self.waits += 1
        for target, source in self.queue:
            target.copy_(source)
        self.queue.clear()


class Kept:
    """A capture whose bytes are appended to a list."""

    def __init__(self, seen: list[bytes], errors: list[Exception] | None = None) -> None:
        self.seen = seen
        self.errors = errors if errors is not None else []

    def store(self, address: int, nbytes: int) -> None:
        self.seen.append(ctypes.string_at(address, nbytes))

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


def raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_hooks_do_not_wait_for_the_device_before_the_step_ends() -> None:
    device, seen = Slow(), list[bytes]()
    pinned = PinnedBuffer(device)
    large, small = torch.randn(SMALL), torch.randn(3, 5)
    expected = [raw(large), raw(small), raw(large * 2)]
    for tensor in (large, small, large * 2):
        pinned.send(tensor, Kept(seen))
    large.zero_()
    small.zero_()
    assert (device.waits, seen) == (0, [])
    pinned.drain()
    assert seen == expected


def test_small_captures_are_copied_from_the_device_together_and_in_order() -> None:
    device, seen = Slow(), list[bytes]()
    pinned = PinnedBuffer(device)
    tensors = [torch.randn(10, dtype=torch.float64), torch.randn(7).half(), torch.tensor(True), torch.empty(0), torch.randn(4, 6).T]
    for tensor in tensors:
        pinned.send(tensor, Kept(seen), fresh=True)
    pinned.drain()
    assert (device.copies, seen) == (1, [raw(tensor) for tensor in tensors])


def test_a_step_larger_than_the_buffer_waits_once_and_loses_nothing() -> None:
    device, seen = Slow(), list[bytes]()
    pinned = PinnedBuffer(device, room=4 * SMALL)
    tensors = [torch.randn(SMALL // 4) for _ in range(7)]
    for tensor in tensors:
        pinned.send(tensor, Kept(seen))
    pinned.drain()
    pinned.drain()
    assert (pinned.early, seen) == (1, [raw(tensor) for tensor in tensors])


@pytest.mark.parametrize("tensor", [torch.ones(2), torch.ones(2, device="meta"), nn.Parameter(torch.ones(2)), torch.ones(2).to_sparse()])
def test_only_dense_tensors_of_a_device_are_taken(tensor: Tensor) -> None:
    assert not PinnedBuffer(Slow()).takes(tensor)


class Everything(PinnedBuffer):
    """Treats memory of the host as memory of a device."""

    def takes(self, tensor: Tensor) -> bool:
        return tensor.nbytes > 0


@pytest.mark.parametrize("size", [8, SMALL])
def test_a_run_stores_the_values_copied_from_the_device(tmp_path: Path, size: int) -> None:
    model = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    device, values = Slow(), [torch.randn(size + step) for step in range(3)]
    plain = {"hook": "forward", "modules": ["0"]}
    spec = {"version": 1, "probes": {"p": plain, "s": {**plain, "transforms": [{"kind": "stats"}]}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        run.engine.moment.pinned = Everything(device)
        for x in run.steps(values):
            model(x.clone())
    stored = probes.open(tmp_path / "r")
    assert all((capture.value == x.numpy()).all() for capture, x in zip(stored["p", "0"], values, strict=True))
    assert stored["s", "0"].numpy().shape == (3, 10)
    assert device.waits == 3


class Broken(Slow):
    """A device whose copies never arrive."""

    def finish(self) -> None:
        raise RuntimeError("device lost")


def test_a_copy_that_does_not_arrive_is_lost_for_every_capture_of_the_step() -> None:
    seen, errors = list[bytes](), list[Exception]()
    pinned = PinnedBuffer(Broken())
    for tensor in (torch.ones(SMALL), torch.ones(3)):
        pinned.send(tensor, Kept(seen, errors))
    pinned.drain()
    pinned.drain()
    assert (seen, [str(error) for error in errors]) == ([], ["device lost"] * 2)


def refuse(*_args: object) -> None:
    raise ValueError("bytes refused")


def test_a_copy_that_cannot_be_stored_is_counted_at_its_own_probe(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity(), nn.Identity())
    modules = {"first": "0", "broken": "1", "last": "0"}
    spec = {"version": 1, "probes": {name: {"hook": "forward", "modules": [path]} for name, path in modules.items()}}
    run = probes.attach(model, {**spec, "on_error": "raise"}, out=tmp_path / "r")
    run.engine.moment.pinned = Everything(Slow())

    def train() -> None:
        with run:
            for step in run.steps(range(3)):
                model(torch.ones(4 + step))
                run.engine.live.taps[1].recorders["output"].add = refuse

    with pytest.raises(RunError, match="`output` of `1` is skipped"):
        train()
    assert [(row.probe, row.captures) for row in run.summary().rows] == [("first", 2), ("broken", 1), ("last", 2)]
    assert [row.note for row in run.summary().rows[::2]] == ["", ""]
