from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import probes
from probes.proof.diff import diff
from tests.examples.scripts import load

WEIGHTS = {"hook": "tensor", "tensors": ["classifier.weight", "features.stem.weight"], "values": ["data"]}
SPEC = {"version": 1, "probes": {"weights": WEIGHTS, "logits": {"hook": "forward", "modules": ["classifier"]}}}
EPOCH, STEP, ELEMENT = 1, 2, (3, 5)


def train(out: Path, *, nudged: bool) -> None:
    """Two epochs of three steps; one weight is moved to the next number before one of them."""
    script = load("digits", "train.py")
    torch.manual_seed(0)
    model = script.DigitsNet(growth=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images, labels = torch.randn(6, 8, 1, 8, 8), torch.randint(10, (6, 8))
    with probes.attach(model, SPEC, out=out) as run:
        for epoch in run.epochs(2):
            for step, index in enumerate(run.steps(range(3 * epoch, 3 * epoch + 3))):
                if nudged and (epoch, step) == (EPOCH, STEP):
                    model.classifier.weight.data.view(torch.int32)[ELEMENT] += 1
                loss = nn.functional.cross_entropy(model(images[index]), labels[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def test_one_ulp_in_one_weight_at_one_step_of_a_training_is_found_at_its_exact_place(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        train(tmp_path / "a", nudged=False)
        train(tmp_path / "again", nudged=False)
        train(tmp_path / "b", nudged=True)
    assert diff(tmp_path / "a", tmp_path / "again").verdict == "same"
    first = diff(tmp_path / "a", tmp_path / "b").first
    assert first is not None
    assert (first.clock.epoch, first.clock.step) == (EPOCH, STEP)
    assert (first.key.probe, first.key.target, first.key.leaf) == ("weights", "classifier.weight", "data")
    assert (first.index, first.elements, first.ulp) == (ELEMENT, 1, 1)
    assert int(first.bits_b, 16) - int(first.bits_a, 16) == 1
