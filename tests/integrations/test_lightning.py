"""The callback for Lightning captures what `probes run` captures of the same script."""

from __future__ import annotations

import runpy
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import probes
from tests.integrations.trainings import roots
from tests.script.test_lightning import SCRIPT, SPEC

MISSING = find_spec("pytorch_lightning") is None
pytestmark = [
    pytest.mark.skipif(MISSING, reason="pytorch-lightning is not installed; the extra `dev` brings it"),
    pytest.mark.filterwarnings("ignore"),  # of its own packages
    pytest.mark.torture,  # importing Lightning takes longer than everything else here
]

IMPORT = "from probes.integrations.lightning import LightningProbes\n"
WITH = IMPORT + SCRIPT.replace("pl.Trainer(", "pl.Trainer(callbacks=CALLBACKS, ")


def test_the_callback_captures_what_probes_run_captures(tmp_path: Path) -> None:
    by_script, by_callback = roots(tmp_path, WITH, yaml.safe_load(SPEC), "LightningProbes")
    assert by_callback == by_script
    assert len(by_callback) == 2


TWO_OPTIMIZERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import pytorch_lightning as pl

class Two(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def training_step(self, batch, index):
        for optimizer in self.optimizers():
            loss = self.head(self.net(batch[0])).square().mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net, self.head)], []

torch.manual_seed(0)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = pl.Trainer(max_epochs=2, accelerator="cpu", callbacks=CALLBACKS, **quiet)
trainer.fit(Two(), DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2))
"""


def test_several_optimizers_step_on_one_batch_in_the_first_epoch_as_in_others(tmp_path: Path) -> None:
    spec = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["net"]}}}
    by_script, by_callback = roots(tmp_path, IMPORT + TWO_OPTIMIZERS, spec, "LightningProbes")
    assert by_callback == by_script
    assert len(by_callback) == 2


RAISING = """
    def on_train_batch_end(self, *_):
        if self.global_step == 8:
            raise ValueError("stop")

    def configure"""


def test_an_exception_in_the_training_leaves_an_incomplete_epoch_and_no_hook(tmp_path: Path) -> None:
    own, spec = tmp_path / "own.py", yaml.safe_load(SPEC)
    callbacks = f"[LightningProbes({spec!r}, out={str(tmp_path / 'run')!r})]"
    own.write_text(WITH.replace("\n    def configure", RAISING).replace("CALLBACKS", callbacks))
    with pytest.raises(ValueError, match="stop"):
        runpy.run_path(str(own), run_name="__main__")
    end = time.monotonic() + 60
    while "unsealed" in probes.open(tmp_path / "run").state.values() and time.monotonic() < end:
        time.sleep(0.1)  # a program that is interrupted does not wait for the sealer, which continues by itself
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: "incomplete"}
    assert probes.verify(tmp_path / "run").ok


CONTINUED = """
    def on_train_batch_end(self, *_):
        if self.global_step == 8 and not CHECKPOINT:
            self.trainer.save_checkpoint("middle.ckpt")
            raise KeyError

    def configure"""


STEPS = {"run": [0, 2, 3, 4, 5], "another": [2, 3, 4, 5]}  # the exception drops step 1, which the checkpoint includes


@pytest.mark.parametrize("out", ["run", "another"])
def test_an_epoch_that_lightning_continues_in_the_middle_has_its_number_and_is_not_complete(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, spec = tmp_path / "own.py", yaml.safe_load(SPEC)
    monkeypatch.chdir(tmp_path)
    script = WITH.replace("\n    def configure", CONTINUED).replace("batch_size=8))", "batch_size=8), ckpt_path=CHECKPOINT)")
    for place, checkpoint in (("run", None), (out, "middle.ckpt")):
        callbacks = f"[LightningProbes({spec!r}, out={place!r}, resume=True)]"
        own.write_text(script.replace("CALLBACKS", callbacks).replace("CHECKPOINT", repr(checkpoint)))
        with suppress(KeyError):
            runpy.run_path(str(own), run_name="__main__")
    found = probes.open(tmp_path / out)
    assert found.state[1] == "incomplete"
    series = next(iter(found.sel(epoch=1, phase="train").series))
    assert series.steps.tolist() == STEPS[out]
    assert any("begins in the middle" in finding.message for finding in probes.verify(tmp_path / out).findings)


def test_an_epoch_in_whose_middle_lightning_stops_is_not_complete(tmp_path: Path) -> None:
    own, spec = tmp_path / "own.py", yaml.safe_load(SPEC)
    callbacks = f"[LightningProbes({spec!r}, out={str(tmp_path / 'run')!r})]"
    own.write_text(WITH.replace("pl.Trainer(", "pl.Trainer(max_steps=8, ").replace("CALLBACKS", callbacks))
    runpy.run_path(str(own), run_name="__main__")
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: "incomplete"}
