"""A loop of Hugging Face's accelerate, with the library itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

import probes
from tests.script import scaled
from tests.script.conftest import Probed

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed; the extra `dev` brings it")


@pytest.fixture(autouse=True)
def state_as_it_was() -> Iterator[None]:
    """Accelerate keeps its state in classes."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


@pytest.mark.filterwarnings("ignore")
def test_optimizer_steps_of_the_trainer_are_steps_and_its_loader_makes_epochs(probed: Probed) -> None:
    torch.manual_seed(0)
    done = probed("""
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        net, data = Net(), loader(16, 2, shuffle=True)
        net, optimizer, data = accelerator.prepare(net, SGD(net.parameters(), lr=0.1), data)
        test = accelerator.prepare(loader(4, 2))
        for epoch in range(2):
            net.train()
            for x, in data:
                with accelerator.accumulate(net):
                    accelerator.backward(net(x).square().mean())
                    optimizer.step()
                    optimizer.zero_grad()
            net.eval()
            with torch.no_grad():
                for x, in test:
                    net(x)
    """)
    assert done.code == 0, done.said
    assert done.steps() == {0: 4, 1: 4}
    assert done.steps("eval") == {0: 2, 1: 2}
    assert done.clocks() == [(epoch, step, microstep) for epoch in range(2) for step in range(4) for microstep in range(2)]


SCALED = """
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    accelerator.scaler = SCALER  # it makes one itself where there is a GPU
    net, optimizer, data = accelerator.prepare(net := Net(), SGD(net.parameters(), lr=0.1), loader(8, 2))
    for x, in data:
        accelerator.backward(net(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.filterwarnings("ignore")
def test_the_loss_scale_of_each_gradient_is_stored(probed: Probed, tmp_path: Path) -> None:
    spec, runs = yaml.safe_load(scaled.SPEC.format("fc", "fc.weight")), []
    for scaler in (f"torch.amp.GradScaler('cpu', init_scale={scaled.SCALE})", "None"):
        torch.manual_seed(0)
        out = tmp_path / str(len(runs))
        done = probed(SCALED.replace("SCALER", scaler), spec=spec, out=str(out))
        assert done.code == 0, done.said
        runs.append(probes.open(out))
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    scaled.check(*runs, "fc", "fc.weight")
