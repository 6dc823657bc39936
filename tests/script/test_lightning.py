"""A script of Lightning, with the library itself."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.script import scaled
from tests.script.trainers import run

pytestmark = [
    pytest.mark.skipif(find_spec("pytorch_lightning") is None, reason="pytorch-lightning is not installed; the extra `dev` brings it"),
    pytest.mark.torture,  # importing it takes longer than most tests
]

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import pytorch_lightning as pl


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def training_step(self, batch, _index):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _index):
        self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


pl.seed_everything(0)
data = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = pl.Trainer(max_epochs=2, accelerator="cpu", **quiet)
trainer.fit(Module(), DataLoader(data, batch_size=4), DataLoader(data, batch_size=8))
"""
SPEC = """
version: 1
probes:
  acts: {hook: forward, modules: [net.0], when: {phases: [train, eval]}}
  grads: {hook: backward, modules: [net.0]}
  used: {hook: tensor, tensors: [net.0.weight], stage: final}
"""


def test_epochs_and_steps_are_those_of_the_trainer_and_its_sanity_check_is_not_an_epoch(tmp_path: Path) -> None:
    found = run(tmp_path, SCRIPT, SPEC)
    for probe, target in (("acts", "net.0"), ("grads", "net.0"), ("used", "net.0.weight")):
        clocks = found.sel(phase="train")[probe, target].clocks
        assert list(zip(clocks["epoch"], clocks["step"], strict=True)) == [(epoch, step) for epoch in range(2) for step in range(6)]
    assert [len(found.sel(phase="eval", epoch=epoch)["acts", "net.0"]) for epoch in range(2)] == [3, 3]


def test_the_loss_scale_of_each_gradient_is_stored(tmp_path: Path) -> None:
    runs = []
    for scaler in (f"torch.amp.GradScaler('cpu', init_scale={scaled.SCALE})", "torch.amp.GradScaler('cpu', enabled=False)"):
        precision = f"plugins=[pl.plugins.MixedPrecision('16-mixed', 'cpu', {scaler})]"
        script = SCRIPT.replace('accelerator="cpu"', f'accelerator="cpu", {precision}')
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(run(folder, script, scaled.SPEC.format("net.0", "net.0.weight")))
    scaled.check(*runs, "net.0", "net.0.weight")


def test_values_that_the_trainer_logs_are_values_of_the_loop(tmp_path: Path) -> None:
    computed = "nn.functional.mse_loss(self.net(batch[0]), batch[1])"
    logged = SCRIPT.replace(f"return {computed}", f"loss = {computed}\n        self.log('train_loss', loss)\n        return loss")
    validated = logged.replace("        self.net(batch[0])\n", "        self.log('mean', self.net(batch[0]).mean())\n")
    logs = "  logs: {values: [loop.train_loss, loop.loss]}\n  evaluated: {values: [loop.mean], when: {phases: [eval]}}\n"
    found = run(tmp_path, validated, SPEC + logs)
    losses = found["logs", "", "loop.loss"]
    assert found["logs", "", "loop.train_loss"].numpy().tolist() == losses.numpy().tolist()
    assert found["logs", "", "loop.train_loss"].clocks.tolist() == losses.clocks.tolist()
    assert len(found.sel(phase="eval")["evaluated", "", "loop.mean"]) == 6
