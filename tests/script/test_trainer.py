"""A script of transformers' Trainer, with the library itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.script import scaled
from tests.script.trainers import run

pytest.importorskip("transformers", reason="transformers is not installed; the extra `minilm` brings it")
pytest.importorskip("accelerate", reason="accelerate is not installed; the extra `dev` brings it")

SCRIPT = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16}
model = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
ones = torch.ones(8, dtype=torch.long)
rows = [{"input_ids": torch.randint(0, 50, (8,)), "attention_mask": ones, "labels": torch.tensor(i % 2)} for i in range(24)]
options = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 8}
quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "eval_strategy": "epoch"}
Trainer(model, TrainingArguments("out", **options, **quiet), train_dataset=rows, eval_dataset=rows[:16]).train()
"""
SPEC = """
version: 1
probes:
  acts: {hook: forward, modules: ["bert.encoder.layer.0"], when: {phases: [train, eval]}}
  grads: {hook: backward, modules: ["bert.encoder.layer.0"]}
  used: {hook: tensor, tensors: ["classifier.weight"], stage: final}
"""


LOGGED = """  logs: {values: [loop.learning_rate, loop.grad_norm, loop.logged_loss]}
  evaluated: {values: [loop.eval_loss], when: {phases: [eval]}}
  steep: {hook: forward, modules: [classifier], where: {loop: grad_norm, above: 0.0}}
"""


def test_a_step_is_an_optimizer_step_with_batches_as_microsteps_and_its_logged_values(tmp_path: Path) -> None:
    logging = SCRIPT.replace('"report_to"', '"logging_steps": 1, "report_to"').replace("Trainer(model", "trainer = Trainer(model")
    history = "trainer.train()\nimport json; json.dump(trainer.state.log_history, open('history.json', 'w'))\n"
    found = run(tmp_path, logging.replace(".train()\n", f"\n{history}"), SPEC + LOGGED)
    rows = json.loads((tmp_path / "history.json").read_text())
    for name, logged in (("learning_rate", "learning_rate"), ("grad_norm", "grad_norm"), ("loss", "logged_loss")):
        series = found["logs", "", f"loop.{logged}"]
        assert series.numpy().tolist() == [row[name] for row in rows if name in row]
        assert series.clocks["step"].tolist() == [0, 1, 2, 0, 1, 2]
    assert found["evaluated", "", "loop.eval_loss"].numpy().tolist() == [row["eval_loss"] for row in rows if "eval_loss" in row]
    assert len(found["steep", "classifier"]) == 12
    places = [(epoch, step, microstep) for epoch in range(2) for step in range(3) for microstep in range(2)]
    for probe in ("acts", "grads"):
        clocks = found.sel(phase="train")[probe, "bert.encoder.layer.0"].clocks
        assert [tuple(map(int, place)) for place in clocks[["epoch", "step", "microstep"]].tolist()] == places
    assert found["used", "classifier.weight"].clocks["step"].tolist() == [0, 1, 2, 0, 1, 2]
    assert [len(found.sel(phase="eval", epoch=epoch)["acts", "bert.encoder.layer.0"]) for epoch in range(2)] == [2, 2]


@pytest.mark.torture  # two trainings, in processes of their own
def test_the_loss_scale_of_each_gradient_is_stored(tmp_path: Path) -> None:
    module, parameter = "bert.encoder.layer.0", "classifier.weight"
    runs = []
    for scaler in (f"torch.amp.GradScaler('cpu', init_scale={scaled.SCALE})", "None"):
        trained = f"trainer.accelerator.scaler = {scaler}  # it makes one itself where there is a GPU\ntrainer.train()"
        unclipped = SCRIPT.replace('"report_to"', '"max_grad_norm": 0.0, "report_to"')  # on a CPU its clipping does not know of the scale
        script = unclipped.replace("Trainer(model", "trainer = Trainer(model").replace(".train()\n", f"\n{trained}\n")
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(run(folder, script, scaled.SPEC.format(module, parameter)))
    scaled.check(*runs, module, parameter)
