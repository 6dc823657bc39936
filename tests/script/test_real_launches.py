"""Trainings that really run in two processes, rank by rank against hooks that the script registers by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import probes

pytest.importorskip("torch.distributed.run", reason="this PyTorch is built without distributed")
pytestmark = pytest.mark.torture

BY_HAND = """
import atexit, os
import torch
from torch import nn

class ByHand:
    def __init__(self, layer):
        self.seen = {"outputs": [], "inputs": [], "gradients": []}
        self.layer = layer
        layer.register_forward_hook(self.forward)
        layer.weight.register_hook(lambda grad: self.seen["gradients"].append(grad.detach().clone()))
        atexit.register(lambda: torch.save(self.seen, f"truth.{int(os.environ.get('RANK') or os.environ.get('LOCAL_RANK') or 0)}"))
    def forward(self, module, args, output):
        if module.training and torch.is_grad_enabled():
            self.seen["inputs"].append(args[0].detach().clone())
            self.seen["outputs"].append(output.detach().clone())
"""

ACCELERATE = """
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))

torch.manual_seed(0)
net = Net()
by_hand = ByHand(net.body)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=3, shuffle=True)
net, optimizer, data = accelerator.prepare(net, optimizer, data)
for epoch in range(2):
    for x, in data:
        with accelerator.accumulate(net):
            accelerator.backward(net(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
accelerator.end_training()
"""

TRAINER = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16}
model = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
model.body = model.bert.pooler.dense  # under a name that all scripts have
by_hand = ByHand(model.body)
ones = torch.ones(8, dtype=torch.long)
rows = [{"input_ids": torch.randint(0, 50, (8,)), "attention_mask": ones, "labels": torch.tensor(i % 2)} for i in range(24)]
options = {"num_train_epochs": 2, "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "ddp_backend": "gloo"}
Trainer(model, TrainingArguments("out", **options, **quiet), train_dataset=rows).train()
"""

LIGHTNING = """
from torch.utils.data import DataLoader, TensorDataset
import pytorch_lightning as pl

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
    def training_step(self, batch, _index):
        return self.head(torch.tanh(self.body(batch[0]))).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    pl.seed_everything(0)
    module = Module()
    by_hand = ByHand(module.body)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", **quiet)
    trainer.fit(module, DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=3))
"""

PIPELINE = """
from torch import distributed
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
    def forward(self, x):
        return torch.tanh(self.body(x))

torch.manual_seed(rank)
module = Stage()
by_hand = ByHand(module.body)
stage = PipelineStage(module, rank, world, torch.device("cpu"))
schedule = SCHEDULE(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
torch.manual_seed(9)
for x, y in [(torch.randn(8, 4), torch.randn(8, 4)) for _ in range(3)]:
    optimizer.zero_grad()
    schedule.step(x) if rank == 0 else schedule.step(target=y)
    optimizer.step()
distributed.destroy_process_group()
"""

SCRIPTS = {
    "accelerate": ACCELERATE,
    "transformers": TRAINER,
    "pytorch_lightning": LIGHTNING,
    "gpipe": PIPELINE.replace("SCHEDULE(", "ScheduleGPipe("),
    "1f1b": PIPELINE.replace("SCHEDULE(", "Schedule1F1B("),
}
SPEC = """
version: 1
probes:
  acts: {modules: [body], values: [input, output]}
  each: {hook: tensor, tensors: [body.weight], stage: increment}
"""


@pytest.mark.parametrize("kind", SCRIPTS)
def test_each_rank_has_the_values_that_its_own_hooks_saw(tmp_path: Path, kind: str) -> None:
    if kind in ("accelerate", "transformers", "pytorch_lightning") and find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed; the extra `dev` brings it")
    (tmp_path / "train.py").write_text(BY_HAND + SCRIPTS[kind])
    (tmp_path / "probe.yaml").write_text(SPEC)
    about = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    command = ["-m", "probes", "run", "--out", "run", "probe.yaml", "train.py"]
    if kind != "pytorch_lightning":  # which starts its other process itself
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    words = [sys.executable, *command]
    done = subprocess.run(
        words, cwd=tmp_path, env=about, text=True, timeout=240, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout
    run = probes.open(tmp_path / "run")
    for rank in range(2):
        truth = torch.load(tmp_path / f"truth.{rank}", weights_only=True)
        found = run.sel(rank=rank)
        for name, word in (("inputs", ("acts", "body", "input.input")), ("outputs", ("acts", "body", "output"))):
            assert _bits([capture.value for capture in found[word]]) == _bits([one.numpy() for one in truth[name]]), (rank, name)
        gradients = [capture.value for capture in found["each", "body.weight"]]
        assert _bits(gradients) == _bits([one.numpy() for one in truth["gradients"]]), rank
        assert len(gradients) == {"gpipe": 12, "1f1b": 12}.get(kind, 8), "two epochs of four batches, or three steps of four"
    assert set(run.state.values()) == {"complete"}
    verdict = probes.verify(tmp_path / "run")
    assert verdict.ok, verdict.findings
    assert done.stdout.count("head of the run ") == 1


def _bits(values: list[object]) -> list[tuple[object, bytes]]:
    return [(value.shape, value.tobytes()) for value in values]  # type: ignore[attr-defined]  # arrays have both
