"""Tensors that the program gives to edits, against forward hooks by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import probes
from probes.capture_file.read import SealedFile
from probes.digest import blake3_hex
from probes.errors import EditError, PlanError, SpecError, UsageError
from tests.runner.in_memory import in_memory

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
DIRECTIONS = [torch.full((8,), value) for value in (0.5, -1.0, 2.0)]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def steer(**edit: Any) -> dict[str, Any]:
    edit = {"kind": "add", "from": {"given": "direction"}, **edit}
    return {"version": 1, "name": "t", "allow_edits": True, "probes": {"steer": {"hook": "forward", "modules": ["0"], "edit": edit}}}


def by_hand(direction: Tensor) -> Tensor:
    model = net()
    model[0].register_forward_hook(lambda module, args, output: output + direction)  # type: ignore[index,operator]  # the model is a Sequential
    found: Tensor = model(X)
    return found


def digest(tensor: Tensor) -> str:
    return blake3_hex(tensor.numpy().tobytes())


def test_values_that_the_program_gives_are_used_from_the_next_call_and_digested(tmp_path: Path) -> None:
    model, found = net(), []
    given = DIRECTIONS[0].clone()
    with probes.attach(model, steer(), out=tmp_path / "run", given={"direction": given}) as run:
        given.zero_()  # it was copied
        for epoch in run.epochs(2):
            for step in run.steps(range(2)):
                if (epoch, step) == (0, 1):
                    run.set(direction=DIRECTIONS[1])
                if (epoch, step) == (1, 1):
                    run.set(direction=DIRECTIONS[2].numpy())
                found.append(model(X).detach())
    expected = [by_hand(DIRECTIONS[index]).detach() for index in (0, 1, 1, 2)]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    files = sorted((tmp_path / "run").glob("epoch-*.h5"))
    closings = [SealedFile(path).document("closing")["given"] for path in files]
    assert [one["start"]["direction"]["blake3"] for one in closings] == [digest(DIRECTIONS[0]), digest(DIRECTIONS[1])]
    rows = [[(row["name"], row["epoch"], row["step"], row["blake3"]) for row in one["set"]] for one in closings]
    assert rows == [[("direction", 0, 1, digest(DIRECTIONS[1]))], [("direction", 1, 1, digest(DIRECTIONS[2]))]]
    assert probes.verify(tmp_path / "run").ok


def test_a_permutation_of_the_program_replaces_a_value() -> None:
    spec = steer(kind="replace")
    spec["probes"]["steer"]["modules"] = ["1"]
    model = net()
    hidden = model[:2](X).detach()  # type: ignore[index,operator]  # the model is a Sequential
    order = torch.tensor([3, 1, 4, 0, 2])
    with in_memory(model, spec, {"direction": hidden[order]}):
        found = model(X)
    assert torch.equal(found, net()[2](hidden[order]))  # type: ignore[index,operator]  # the model is a Sequential


def test_a_tensor_of_another_shape_stops_the_training_with_the_reason() -> None:
    model = net()
    with in_memory(model, steer(), {"direction": torch.zeros(8)}) as run:
        model(X)
        run.set(direction=np.zeros(3))
        with pytest.raises(EditError, match=r"shape \(3,\) does not broadcast to \(5, 8\)"):
            model(X)


def test_names_that_are_missing_misspelt_or_unused_are_refused(tmp_path: Path) -> None:
    model = net()
    with pytest.raises(PlanError, match="the program does not give `direction`") as caught:
        probes.attach(model, steer(), out=tmp_path / "a", given={"directon": 1.0})
    assert "did you mean `directon`?" in str(caught.value)
    with pytest.raises(UsageError, match="the spec takes no tensor `other`"):
        probes.attach(model, steer(), out=tmp_path / "b", given={"direction": 1.0, "other": 1.0})
    with pytest.raises(PlanError, match="`direction` is not a tensor"):
        probes.attach(model, steer(), out=tmp_path / "c", given={"direction": "left"})
    with pytest.raises(SpecError, match="exactly one of the three"):
        probes.load(steer(**{"from": {"given": "direction", "file": "x.npy"}}))
    assert not [*tmp_path.iterdir()]


def test_a_plan_without_the_program_notes_the_names_that_it_must_give() -> None:
    (note,) = probes.resolve(steer(), net()).notes
    assert "`direction` is given by the program" in note.message


def test_only_names_of_the_spec_can_be_set() -> None:
    model = net()
    with in_memory(model, steer(), {"direction": 0.0}) as run:
        with pytest.raises(UsageError, match="no edit takes `directio`; the spec takes `direction`; did you mean"):
            run.set(directio=1.0)
        model(X)
