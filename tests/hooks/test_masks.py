"""Masks: numbers of a padded batch are those of the elements that count, in any transform that takes a mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import PlanError

MASK = "input.attention_mask"


class Encoder(nn.Module):
    """A layer over padded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        found: Tensor = self.fc(x) * scale
        return found


def captured(out: Path, transforms: dict[str, Any], calls: list[tuple[Any, ...]], **named: Any) -> tuple[Any, list[Tensor]]:
    """A run whose calls have these inputs, read back, and what the model returned."""
    torch.manual_seed(0)
    model = Encoder()
    settings = {"modules": [""], "values": ["output", "input.x"], "expect": {"fires": "some"}}
    found = {name: {**settings, "transforms": [transform]} for name, transform in transforms.items()}
    with torch.no_grad(), probes.attach(model, {"version": 1, "name": "t", "probes": found}, out=out) as run, run.epoch(0):
        outputs = []
        for call in calls:
            with run.step(), run.phase("train"):
                outputs.append(model(*call, **named))
    return probes.open(out), outputs


def test_numbers_leave_padding_out(tmp_path: Path) -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    x = torch.randn(2, 5, 4)
    x[mask == 0] = 1e6  # what is padded would show in every number
    transforms = {
        "stats": {"kind": "stats", "mask": MASK},
        "norm": {"kind": "norm", "mask": "input.1"},
        "mean": {"kind": "reduce", "op": "mean", "dims": [0, 1], "mask": MASK},
        "most": {"kind": "reduce", "op": "max", "mask": MASK},
        "moments": {"kind": "accumulate", "dims": [0, 1], "mask": MASK},
        "all": {"kind": "stats"},
    }
    run, (output, again) = captured(tmp_path / "run", transforms, [(x, mask), (x, mask.bool())])
    kept = output[mask.bool()].double()
    assert torch.equal(output, again)
    for leaf, values in (("output", kept), ("input.x", x[mask.bool()].double())):
        names = run["stats", "", leaf].signature.coords["stat"]
        for row in run["stats", "", leaf].numpy():
            stats = dict(zip(names, row, strict=True))
            assert (stats["count"], stats["max"], stats["min"]) == (values.numel(), values.max(), values.min())
            assert stats["mean"] == pytest.approx(values.mean().item(), abs=1e-6)
            assert stats["std"] == pytest.approx(values.std(correction=0).item(), rel=1e-5)
        assert run["norm", "", leaf].numpy() == pytest.approx(values.norm().item(), rel=1e-6)
        assert run["mean", "", leaf].numpy()[0] == pytest.approx(values.mean(0).numpy(), rel=1e-5)
        assert run["most", "", leaf].numpy().tolist() == [values.max().item()] * 2
        moments = dict(zip(run["moments", "", leaf].signature.coords["stat"], run["moments", "", leaf].numpy()[0], strict=True))
        assert moments["count"].tolist() == [2 * len(values)] * values.shape[1]
        assert moments["mean"] == pytest.approx(values.mean(0).numpy(), rel=1e-9)
        assert moments["variance"] == pytest.approx(values.var(0, correction=0).numpy(), rel=1e-9)
    assert run["all", "", "output"].numpy()[0, 0] == output.numel()


def test_a_mask_that_is_absent_or_does_not_fit_skips_the_value_with_the_reason(tmp_path: Path) -> None:
    x = torch.randn(2, 5, 4)
    masks = [torch.ones(2, 5), None, torch.ones(5, 2), torch.ones(2, 1), torch.zeros(2, 5, dtype=torch.bool), torch.tensor([1, 0])]
    transforms = {"stats": {"kind": "stats", "mask": MASK}, "rows": {"kind": "norm", "dims": [0], "mask": MASK}}
    run, outputs = captured(tmp_path / "run", transforms, [(x, mask) for mask in masks])
    stats = run["stats", "", "output"]
    assert stats.clocks["step"].tolist() == [0, 3, 4, 5]
    assert stats.numpy()[:, 0].tolist() == [30, 30, 0, 15]
    assert run["rows", "", "output"].numpy()[0].reshape(-1) == pytest.approx(outputs[5][0].abs().reshape(-1).numpy(), rel=1e-6)
    said = {(one.probe, one.leaf, one.reason): one for one in run.missing}
    assert said["stats", "output", "absent"].times == 1
    assert "the mask `input.attention_mask` is not there in this call" in said["stats", "output", "absent"].first
    assert "has shape (5, 2), and the value (2, 5, 3)" in said["stats", "output", "failed"].first
    assert said["rows", "output", "failed"].times == 4, "the second axis of the mask remains in `dims: [0]`"
    assert "`dims` does not name all of the first 2 of the value" in said["rows", "output", "failed"].first


def test_a_mask_needs_the_first_axis_in_dims(tmp_path: Path) -> None:
    probe = {"modules": [""], "values": ["output"], "dims": ["batch", "token", "unit"]}
    transform = {"kind": "reduce", "op": "mean", "dims": ["token"], "mask": MASK}
    with pytest.raises(PlanError, match="`mask` needs the first axes of the value in `dims`"):
        probes.resolve({"version": 1, "probes": {"p": {**probe, "transforms": [transform]}}}, Encoder())
