"""Every preset on a real model: what is in the file is what hand-written hooks and plain arithmetic give."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

import probes
from probes.errors import PlanError
from probes.spec import load_spec
from probes.spec.spec_files import preset_folder
from tests.pages import script
from tests.rounding import U32, after
from tests.test_readme import lasting

PRESETS = sorted(path.stem for path in preset_folder().glob("*.yaml"))
STEPS, EPOCHS = 3, 2


class Net(nn.Module):
    """A convolution with a unit that cannot fire, a normalization with integer buffers, attention weights by head, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)
        self.norm.bias.data[2] = -50
        self.seen: list[Tensor] = []

    def forward(self, image: Tensor) -> Tensor:
        places = self.act(self.norm(self.stem(image))).flatten(2).transpose(1, 2)
        mixed, weights = self.attention(places, places, places, average_attn_weights=False)
        self.seen.append(weights.detach())
        found: Tensor = self.head(mixed.mean(1))
        return found


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def recorded(model: nn.Module, preset: str, out: Path, **chosen: str) -> Any:
    """A short training with a preset, read back; `chosen` are values for its variables."""
    images = [torch.randn(4, 1, 9, 9) for _ in range(STEPS)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probes.attach(model, f"preset:{preset}", out=out, vars=chosen) as run:
        for _ in run.epochs(EPOCHS):
            for image in run.steps(images):
                optimizer.zero_grad()
                model(image).square().mean().backward()
                optimizer.step()
    return probes.open(out)


def test_gradient_flow_holds_the_norm_of_each_weights_gradient(net: Net, tmp_path: Path) -> None:
    run = recorded(net, "gradient-flow", tmp_path / "run")
    assert {series.key.target for series in run.series} == {"stem.weight", "norm.weight", "head.weight", "attention.out_proj.weight"}
    series = run["gradients", "head.weight"]
    assert len(series) == STEPS * EPOCHS
    assert net.head.weight.grad is not None
    assert series.numpy()[-1] == pytest.approx(net.head.weight.grad.double().norm().item(), rel=U32 + 2**-40)


def test_dead_units_shows_the_unit_that_cannot_fire(net: Net, tmp_path: Path) -> None:
    largest = recorded(net, "dead-units", tmp_path / "run")["largest", "act"].numpy()
    assert largest.shape == (STEPS * EPOCHS, 4)
    assert (largest[:, 2] == 0).all()
    assert (largest[:, [0, 1, 3]] > 0).all()


def test_dead_units_finds_a_functional_relu_by_the_layer_before_it(net: Net, tmp_path: Path) -> None:
    largest = recorded(net, "dead-units", tmp_path / "run", type="BatchNorm2d")["largest", "norm"].numpy()
    assert (largest[:, 2] <= 0).all()


def test_dead_units_reports_a_model_without_relu(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="ReLU"):
        probes.attach(nn.Linear(2, 2), "preset:dead-units", out=tmp_path / "run")


SATURATED: dict[
    str, tuple[dict[str, float], list[float], dict[str, list[int]]]
] = {  # an activation with its settings, inputs of its units, and the units that are at an end
    "Tanh": ({}, [0.0, 30.0, -30.0, 1.0], {"upper": [1], "lower": [2]}),
    "Sigmoid": ({"low": 0.01}, [0.0, 30.0, -30.0, 1.0], {"upper": [1], "lower": [2]}),
    "ReLU6": ({"low": 0, "high": 6}, [3.0, 30.0, -30.0, 1.0], {"upper": [1], "lower": [2]}),
    "GELU": ({"low": 0, "high": 1e9}, [3.0, 30.0, -30.0, 1.0], {"upper": [], "lower": [2]}),
}


@pytest.mark.parametrize("kind", SATURATED)
def test_saturation_names_the_units_at_each_end_and_their_first_step(kind: str, tmp_path: Path) -> None:
    settings, inputs, ends = SATURATED[kind]
    model = nn.Sequential(nn.Identity(), getattr(nn, kind)())
    spread = torch.tensor([[-0.5], [0.5]])
    with probes.attach(model, "preset:saturation", out=tmp_path / "run", vars={**settings, "type": kind, "steps": 3}) as run, run.epoch(0):
        for step in range(6):
            with run.step():
                model(torch.tensor(inputs) * (step > 0) + spread + (0.4 if kind == "ReLU6" and not step else 0))
    numbers = {end: [one for verdict in _verdicts(tmp_path, end) for one in verdict.numbers] for end in ends}
    assert {end: [int(one.label) for one in found] for end, found in numbers.items()} == ends
    assert {one.step for found in numbers.values() for one in found} == {1}


def _verdicts(folder: Path, end: str) -> list[Any]:
    return [one for one in probes.open(folder / "run").verdicts if end in one.rule]


def test_activation_stats_holds_ten_numbers_for_every_module_that_fires(net: Net, tmp_path: Path) -> None:
    run = recorded(net, "activation-stats", tmp_path / "run")
    assert {series.key.target for series in run.series} == {"stem", "norm", "act", "attention", "head"}
    stats = dict(zip(run["outputs", "act"].signature.coords["stat"], run["outputs", "act"].numpy()[0], strict=True))
    assert stats["count"] == 4 * 4 * 4 * 4
    assert stats["zeros"] >= stats["count"] / 4
    assert stats["nan"] == 0


def test_layer_outputs_holds_whole_outputs_of_the_first_step_of_each_epoch(net: Net, tmp_path: Path) -> None:
    run = recorded(net, "layer-outputs", tmp_path / "run", layers="{act,head}")
    assert {series.key.target for series in run.series} == {"act", "head"}
    series = run["outputs", "act"]
    assert series.numpy().shape == (EPOCHS, 4, 4, 4, 4)
    assert series.clocks["epoch"].tolist() == [0, 1]
    assert series.clocks["step"].tolist() == [0, 0]


def test_weight_and_grad_norms_holds_both_for_each_parameter(net: Net, tmp_path: Path) -> None:
    run = recorded(net, "weight-and-grad-norms", tmp_path / "run")
    names = {name for name, _ in net.named_parameters()}
    assert {series.key.target for series in run.series if series.key.probe == "gradients"} == names
    assert names <= {series.key.target for series in run.series if series.key.probe == "weights"}
    assert net.head.weight.grad is not None
    assert run["gradients", "head.weight"].numpy()[-1] == pytest.approx(net.head.weight.grad.double().norm().item(), rel=U32 + 2**-40)
    used = net.head.weight.detach().double() + 0.1 * net.head.weight.grad.double()  # the weight that the last step was computed with
    parts = used.norm().item() + 0.1 * net.head.weight.grad.norm().item()  # whose roundings are those of 0.1, product, difference and norm
    assert run["weights", "head.weight"].numpy()[-1] == pytest.approx(used.norm().item(), rel=0, abs=after(4) * parts)


def test_save_values_holds_inputs_outputs_and_both_gradients(net: Net, tmp_path: Path) -> None:
    run = recorded(net, "save-values", tmp_path / "run", layers="head")
    leaves = {series.key.leaf: series.numpy() for series in run.series}
    assert set(leaves) == {"input.input", "output", "grad_input.input", "grad_output"}
    assert leaves["output"].shape == leaves["grad_output"].shape == (EPOCHS, 4, 3)
    assert leaves["input.input"].shape == leaves["grad_input.input"].shape == (EPOCHS, 4, 4)
    assert leaves["grad_output"][0] == pytest.approx(2 * leaves["output"][0] / 12, rel=after(4))


def test_attention_entropy_holds_one_number_for_each_head(net: Net, tmp_path: Path) -> None:
    entropy = recorded(net, "attention-entropy", tmp_path / "run")["entropy", "attention"].numpy()
    expected = torch.special.entr(net.seen[0].double()).sum(-1).mean((0, 2))
    means = 4 * 16  # entropies in a mean, which einops adds up in float32
    assert entropy[0] == pytest.approx(expected.numpy(), rel=after(means + 2))
    assert (entropy <= math.log(16) * (1 + after(16 + means + 2))).all(), "a softmax adds up to 1 but for 16 roundings"


def test_gradient_noise_scale_holds_the_numbers_of_the_estimate(net: Net, tmp_path: Path) -> None:
    """The estimate for one step of 4 passes, from the file and from gradients by hand."""
    images = [torch.randn(2, 1, 9, 9) for _ in range(4)]
    parts, summed = [], [torch.zeros_like(parameter, dtype=torch.float64) for parameter in net.parameters()]
    with probes.attach(net, "preset:gradient-noise-scale", out=tmp_path / "run") as run:
        for image in run.steps(images, accumulate=4):
            before = [torch.zeros_like(one) if one.grad is None else one.grad.clone() for one in net.parameters()]
            (net(image).square().mean() / 4).backward()
            own = [one.grad.double() - old.double() for one, old in zip(net.parameters(), before, strict=True) if one.grad is not None]
            parts.append(sum(float(one.square().sum()) for one in own))
            summed = [total + one for total, one in zip(summed, own, strict=True)]
    found = probes.open(tmp_path / "run")
    small = sum((4 * one.numpy()) ** 2 for one in found.match("parts/**")).mean()
    large = sum(one.numpy()[-1] ** 2 for one in found.match("whole/**"))
    assert small == pytest.approx(16 * sum(parts) / 4, rel=1e-4)
    assert large == pytest.approx(sum(float(one.square().sum()) for one in summed), rel=1e-4)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_opens_with_the_question_it_answers(preset: str) -> None:
    text = (preset_folder() / f"{preset}.yaml").read_text(encoding="utf-8")
    assert list(yaml.safe_load(text))[:2] == ["version", "about"]
    assert "?" in load_spec(f"preset:{preset}").spec.about


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_can_be_extended(preset: str) -> None:
    loaded = load_spec({"version": 1, "name": "mine", "extends": [f"preset:{preset}"]})
    assert loaded.spec.probes == load_spec(f"preset:{preset}").spec.probes
    assert loaded.files[1][0] == f"preset:{preset}"


def test_the_page_shows_every_preset_and_its_output() -> None:
    page = script("presets")
    assert sorted([*page.SHOWN, *page.STOPPED, *page.REFUSED]) == PRESETS
    assert lasting(page.PAGE.read_text(encoding="utf-8")) == lasting(page.page()), "run: make docs"
