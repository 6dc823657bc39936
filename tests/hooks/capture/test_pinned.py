"""Captures on an accelerator, with one that is made of host memory and does its copies as late as it may."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.hooks.capture.pinned import SMALL, Pinned


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


def kept(seen: list[bytes]) -> Callable[[int, int], None]:
    return lambda address, nbytes: seen.append(ctypes.string_at(address, nbytes))


def raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_nothing_is_waited_for_before_the_step_ends() -> None:
    device, seen = Slow(), list[bytes]()
    pinned = Pinned(device)
    large, small = torch.randn(SMALL), torch.randn(3, 5)
    expected = [raw(large), raw(small), raw(large * 2)]
    for tensor in (large, small, large * 2):
        pinned.send(tensor, kept(seen))
    large.zero_()
    small.zero_()
    assert (device.waits, seen) == (0, [])
    pinned.drain()
    assert seen == expected


def test_small_captures_come_over_in_one_copy_and_in_order() -> None:
    device, seen = Slow(), list[bytes]()
    pinned = Pinned(device)
    tensors = [torch.randn(10, dtype=torch.float64), torch.randn(7).half(), torch.tensor(True), torch.empty(0), torch.randn(4, 6).T]
    for tensor in tensors:
        pinned.send(tensor, kept(seen), fresh=True)
    pinned.drain()
    assert (device.copies, seen) == (1, [raw(tensor) for tensor in tensors])


def test_a_step_with_more_than_there_is_room_for_waits_once_and_loses_nothing() -> None:
    device, seen = Slow(), list[bytes]()
    pinned = Pinned(device, room=4 * SMALL)
    tensors = [torch.randn(SMALL // 4) for _ in range(7)]
    for tensor in tensors:
        pinned.send(tensor, kept(seen))
    pinned.drain()
    pinned.drain()
    assert (pinned.early, seen) == (1, [raw(tensor) for tensor in tensors])


@pytest.mark.parametrize("tensor", [torch.ones(2), torch.ones(2, device="meta"), nn.Parameter(torch.ones(2)), torch.ones(2).to_sparse()])
def test_only_dense_tensors_of_a_device_are_taken(tensor: Tensor) -> None:
    assert not Pinned(Slow()).takes(tensor)


class Everything(Pinned):
    """Takes what lies on the host for what lies on a device."""

    def takes(self, tensor: Tensor) -> bool:
        return tensor.nbytes > 0


@pytest.mark.parametrize("size", [8, SMALL])
def test_a_run_stores_what_the_device_brings_over(tmp_path: Path, size: int) -> None:
    model = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    device, values = Slow(), [torch.randn(size + step) for step in range(3)]
    plain = {"hook": "forward", "modules": ["0"]}
    spec = {"version": 1, "probes": {"p": plain, "s": {**plain, "transforms": [{"kind": "stats"}]}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        run.moment.pinned = Everything(device)
        for x in run.steps(values):
            model(x.clone())
    stored = probes.open(tmp_path / "r")
    assert all((capture.value == x.numpy()).all() for capture, x in zip(stored["p", "0"], values, strict=True))
    assert stored["s", "0"].numpy().shape == (3, 10)
    assert device.waits == 3
