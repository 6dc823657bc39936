"""Common uses of a probed model: parts called alone, copies, vmap, interrupts, threads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import RunError
from tests.runner.capturing import Block, batches, clocks, record


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_a_model_whose_root_is_never_called_is_followed_at_its_parts(tmp_path: Path) -> None:
    class Lightning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

        def training_step(self, x: Tensor) -> Tensor:
            return self.net(x) + self.net(x)

    def loop(model: Any, data: Any) -> None:
        for x in data:
            model.training_step(x).sum().backward()

    read = record(Lightning(), tmp_path, loop=loop, modules=["net.0"], values=["output"])
    assert [(clock.step, clock.microstep) for clock in clocks(read["p", "net.0"])] == [(s, m) for s in range(3) for m in range(2)]


def test_a_part_called_without_the_root_later_in_the_run_is_noticed(tmp_path: Path) -> None:
    def loop(model: Any, data: Any) -> None:
        for x in data:
            model(x)
            with torch.no_grad():
                model.eval()
                model[0](x)
                model.train()

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="forward", modules=["0"], when={"phases": ["train", "eval"]})
    assert len(read.sel(phase="train")["p", "0"]) == 3
    assert [clock.step for clock in clocks(read.sel(phase="eval")["p", "0"])] == [0, 1, 2]


def test_a_value_that_does_not_fit_is_skipped_in_each_step_and_training_continues(tmp_path: Path) -> None:
    model = Block()
    with pytest.raises(RunError, match=r"probe `p` captured nothing: `output` of `a` failed 3 times: .*; epoch 0 step 0"):
        record(model, tmp_path, hook="forward", modules=["a"], dims=["one", "two", "three"])
    assert not model.a._forward_hooks


def test_a_copy_and_a_pickle_of_a_probed_model_are_inert(tmp_path: Path) -> None:
    import copy
    import pickle

    model = Block()
    hooks = ("forward", "pre-forward", "backward")
    spec = {"version": 1, "probes": {hook: {"hook": hook, "modules": ["a"]} for hook in hooks}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps(batches(2)):
            torch.autograd.backward([value.sum() for value in model(x).values()])
            torch.autograd.backward([value.sum() for value in copy.deepcopy(model)(x).values()])
            torch.autograd.backward([value.sum() for value in pickle.loads(pickle.dumps(model))(x).values()])
    assert [len(probes.open(tmp_path / "run")[hook, "a"]) for hook in hooks] == [2, 2, 2]


def test_vmap_and_func_grad_are_skipped_with_the_reason(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            torch.vmap(model)(x)

    with pytest.raises(RunError, match="functorch transform"):
        record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="forward", modules=["0"])


def test_a_keyboard_interrupt_in_a_forward_does_not_confuse_the_next_call(tmp_path: Path) -> None:
    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 2)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            out: Tensor = self.a(x)
            if self.calls == 2:
                raise KeyboardInterrupt
            return out

    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            try:
                model(x)
            except KeyboardInterrupt:
                model(x)

    read = record(Interrupted(), tmp_path, loop=loop, hook="forward", modules=["a"])
    assert [(clock.step, clock.microstep) for clock in clocks(read["p", "a"])] == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_threads_that_call_the_model_lose_no_capture(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            workers = [threading.Thread(target=model, args=(x,)) for _ in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="forward", modules=["0"])
    assert len(read["p", "0"]) == 12
