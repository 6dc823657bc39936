"""Transforms of functions, and modules that torch.export gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import RunError

pytestmark = pytest.mark.filterwarnings("ignore")
SPEC: dict[str, Any] = {"version": 1, "name": "t", "probes": {"p": {"hook": "forward", "modules": ["0"]}}}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Tanh())


def along(model: nn.Module, x: Tensor) -> Any:
    return torch.func.jvp(model, (x,), (torch.ones_like(x),))


def each(model: nn.Module, x: Tensor) -> Any:
    return torch.func.vmap(model)(x)


def slope(model: nn.Module, x: Tensor) -> Any:
    return torch.func.grad(lambda value: model(value).sum())(x)


@pytest.mark.parametrize("transform", [along, slope])
def test_a_step_that_runs_under_grad_or_jvp_has_its_result_and_its_values(tmp_path: Path, transform: Any) -> None:
    x = torch.ones(2, 3)
    model = net()
    with probes.attach(model, SPEC, out=tmp_path / "run") as run:
        found = [transform(model, batch) for batch in run.steps([x])]
    torch.testing.assert_close(found[0], transform(net(), x), rtol=0, atol=0)
    assert torch.equal(probes.open(tmp_path / "run")["p", "0"].torch()[0], model[0](x).detach())


def test_a_step_that_runs_under_vmap_has_its_result_and_the_account_counts_functorch(tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    model = net()
    run = probes.attach(model, SPEC, out=tmp_path / "run")
    with pytest.raises(RunError, match="functorch"), run:
        found = [each(model, batch) for batch in run.steps([x])]
    torch.testing.assert_close(found[0], each(net(), x), rtol=0, atol=0)
    account = run.accounts[0][0]
    assert account.skipped["functorch"] == account.fired > 0
    assert account.written == 0


def test_modules_of_an_unflattened_export_are_captured(tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    model = net()
    restored = torch.export.unflatten(torch.export.export(model, (x,), strict=False))
    with probes.attach(restored, SPEC, out=tmp_path / "run") as run:
        for batch in run.steps([x]):
            restored(batch)
    assert torch.equal(probes.open(tmp_path / "run")["p", "0"].torch()[0], model[0](x).detach())


def test_an_exported_program_is_not_a_model_and_the_message_names_the_module_to_attach_to(tmp_path: Path) -> None:
    program = torch.export.export(net(), (torch.ones(2, 3),), strict=False)
    with pytest.raises(Exception, match=r"(?i)ExportedProgram"):
        probes.attach(program, SPEC, out=tmp_path / "run")  # type: ignore[arg-type]  # an exported program is none
