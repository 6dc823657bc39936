"""The source of the first value that is not finite: the module that made it, and not the next one that received it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import Stopped


class Divides(nn.Module):
    """Divides by zero where a test says so."""

    def __init__(self, *, fault: bool) -> None:
        super().__init__()
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        return x / (x - x) if self.fault else x * 1


class Mixer(nn.Module):
    """A layer, operations of its own, and an activation."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.act = nn.GELU()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        y = self.mix(x)
        y = y.log() if self.how == "forward" else torch.sqrt(y * 0) + y if self.how == "backward" else y
        found: Tensor = self.act(y)
        return found


def hunted(how: str, out: Path, *, values: list[str] | None = None) -> tuple[str, dict[str, Any]]:
    """What is said of a fault in the second step, and its event as the file has it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), Mixer(how), Divides(fault=how == "module"), nn.Linear(8, 2))
    if how == "weights":
        net[1].mix.weight.data[3, 1] = torch.inf
    x = torch.randn(3, 4)
    x[1] = torch.nan if how == "batch" else x[1]
    probe = {"modules": ["", "**"], "values": values or ["input", "output", "grad_output"], "transforms": [{"kind": "stats"}]}
    spec = {"version": 1, "name": "t", "probes": {"v": {**probe, "when": {"trigger": {"kind": "nonfinite", "then": "stop"}}}}}

    def train() -> None:
        with probes.attach(net, spec, out=out) as run, run.epoch(0), run.step():
            loss = net(x).square().mean()
            (loss / 0 if how == "loss" else loss).backward()
        raise AssertionError

    with pytest.raises(Stopped) as found:
        train()
    (event,) = probes.open(out).events
    assert event["source"]["text"] in str(found.value)
    return str(found.value), event


@pytest.mark.parametrize(
    ("how", "leaf", "target", "kind", "module", "text"),
    [
        ("module", "output", "2", "module", "2", "its inputs and weights are finite, so `2` made it"),
        ("forward", "input.input", "1.act", "forward", "1", "forward of Mixer itself made it, after `output` of `1.mix`"),
        ("weights", "output", "1.mix", "weights", "1.mix", "its inputs are finite, and its weights are not: `weight`"),
        ("batch", "input.input", "", "batch", None, "it is an input of the model: the batch is not finite"),
        ("backward", "grad_output", "1.mix", "backward", None, "the last finite gradient before it is `grad_output` of `1`"),
        ("loss", "grad_output", "3", "backward", None, "it is the first gradient of the backward"),
    ],
)
def test_the_report_names_the_module_that_made_the_value(
    how: str, leaf: str, target: str, kind: str, module: str | None, text: str, tmp_path: Path
) -> None:
    said, event = hunted(how, tmp_path / "run")
    assert text in said
    assert (event["leaf"], event["target"]) == (leaf, target)
    assert (event["source"]["kind"], event["source"]["module"]) == (kind, module)


def test_the_report_advises_to_capture_inputs_if_they_were_not_captured(tmp_path: Path) -> None:
    said, event = hunted("forward", tmp_path / "run", values=["output"])
    assert event["target"] == "1.act", "the module that received the value"
    assert "its inputs were not checked: capture `input` too" in said
    assert event["source"]["kind"] == "unknown"
