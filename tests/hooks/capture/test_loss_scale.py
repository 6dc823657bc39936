"""Gradients of a scaled loss are stored with the scale, and compared without it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

import probes
from probes.errors import UsageError
from probes.hooks.capture.loss_scale import OTHERS

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
PROBES = {
    "values": {"modules": ["0"], "values": ["output", "grad_output"]},
    "increments": {"hook": "tensor", "tensors": ["0.weight"]},
    "sums": {"hook": "tensor", "tensors": ["0.weight"], "stage": "accumulated", "transforms": [{"kind": "norm"}]},
    "finals": {"hook": "tensor", "tensors": ["0.weight"], "stage": "final"},
    "counts": {"hook": "tensor", "tensors": ["0.weight"], "transforms": [{"kind": "histogram", "bins": 3, "range": [-1, 1]}]},
}


class Derived(GradScaler):
    """A scaler of the program's own, as that of FSDP is."""

    def scale(self, outputs: Any) -> Any:
        return super().scale(outputs)


def trained(path: Path, scale: float, steps: int = 4, scaler: type[GradScaler] = GradScaler, **options: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with probes.attach(model, {"version": 1, "name": "t", "probes": PROBES}, out=path) as run:
        made = scaler("cpu", init_scale=scale, growth_interval=2, **options)
        for x in run.steps([X] * steps):
            made.scale(model(x).square().mean()).backward()
            made.step(optimizer)
            made.update()
            optimizer.zero_grad()
    return run


@pytest.mark.parametrize("scaler", [GradScaler, Derived])
def test_every_scaled_gradient_has_the_scale_of_its_step(tmp_path: Path, scaler: type[GradScaler]) -> None:
    run, plain = trained(tmp_path / "scaled", 1024.0, scaler=scaler), trained(tmp_path / "plain", 1.0, enabled=False)
    one, other = probes.open(tmp_path / "scaled"), probes.open(tmp_path / "plain")
    scales = [1024.0, 1024.0, 2048.0, 2048.0]
    for place in (("values", "0", "grad_output"), ("increments", "0.weight", "grad"), ("sums", "0.weight", "grad")):
        assert one[place].loss_scale.tolist() == scales
        assert (one[place].unscaled() == other[place].numpy()).all()
        assert (one[place].numpy() != other[place].numpy()).any()
        assert other[place].loss_scale.tolist() == [1.0] * 4
    for place in (("finals", "0.weight", "grad"), ("values", "0", "output")):
        assert one[place].loss_scale.tolist() == [1.0] * 4
        assert (one[place].unscaled() == one[place].numpy()).all()
    with pytest.raises(UsageError, match="`histogram`, whose result does not follow the scale"):
        one["counts", "0.weight"].unscaled()
    assert "the gradients of `sums` are stored as the loss scale made them (1024 at first, 2048 at last)" in str(run.summary())
    assert "loss scale" not in str(plain.summary())
    assert one.series == [] or all(series.key.leaf != "loss_scale" for series in one.series)
    assert one["increments", "0.weight"].sel(step=slice(1, 3)).loss_scale.tolist() == scales[1:3]


def test_runs_with_other_scales_are_compared_without_them(tmp_path: Path) -> None:
    for name, scale in (("a", 1024.0), ("b", 64.0)):
        trained(tmp_path / name, scale)
    found = probes.diff(tmp_path / "a", tmp_path / "b")
    differing = [one.key.probe for one in found.series if one.status != "same"]
    assert differing == ["counts"]
    scaled = {(one.key.probe, one.key.leaf): one.unscaled for one in found.series}
    assert [place for place, count in scaled.items() if count == 4] == [("values", "grad_output"), ("increments", "grad"), ("sums", "grad")]
    assert sum(scaled.values()) == 12


def test_only_the_backward_of_a_scaled_loss_is_scaled(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    spec = {"version": 1, "name": "t", "clock": {"step": "forward"}, "probes": {"p": {"modules": ["0"], "values": ["grad_output"]}}}
    scaler = GradScaler("cpu", init_scale=8.0)
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        losses: list[Tensor] = []
        for index, x in enumerate(run.steps([X] * 3)):
            loss = model(x).sum()
            losses = list(scaler.scale([loss])) if index == 1 else [loss]
            losses[0].backward()
    found = probes.open(tmp_path / "run")["p", "0"]
    assert found.loss_scale.tolist() == [1.0, 8.0, 1.0]
    assert (found.unscaled() == found.unscaled()[0]).all()


@pytest.mark.parametrize("library", OTHERS)
def test_a_library_that_may_scale_by_itself_is_named_unless_a_known_scale_was_stored(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    said = f"`{library}` was imported: if it scales the loss, gradients are stored scaled, and the scale is not known"
    assert said in str(trained(tmp_path / "plain", 1.0, steps=1, enabled=False).summary())
    assert said not in str(trained(tmp_path / "scaled", 64.0, steps=1).summary())
