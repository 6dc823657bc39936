"""Edits: what they do to values and gradients, what they refuse, and that they can be read and repeated."""

from __future__ import annotations

from collections import UserDict
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import EditError, PlanError, SpecError, StorageError
from probes.journal.writer import Journal
from tests.rounding import after, within


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(input=torch.relu(self.a(x)))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.net(x), "x": x}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def run_with(model: nn.Module, path: Path, probes_: dict[str, Any], steps: int = 2, **spec: Any) -> tuple[Any, list[Tensor]]:
    outputs = []
    with probes.attach(model, {"version": 1, "allow_edits": True, "probes": probes_, **spec}, out=path / "run") as run:
        for x in run.steps([X] * steps):
            model.zero_grad()
            out = model(x)
            out = out["y"] if isinstance(out, dict) else out
            out.sum().backward()
            outputs.append(out.detach().clone())
    return probes.open(path / "run"), outputs


def test_an_edit_without_the_spec_allowing_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="allow_edits: true"):
        probes.attach(
            Net(),
            {"version": 1, "probes": {"e": {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 2}}}},
            out=tmp_path / "r",
        )


def test_the_model_and_a_capture_use_the_scaled_output(tmp_path: Path) -> None:
    model = Net()
    plain = model.a(X).detach()
    read, _ = run_with(
        model,
        tmp_path,
        {
            "double": {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 2.0}},
            "after": {"hook": "forward", "modules": ["a"]},
            "before": {"hook": "forward", "modules": ["a"], "sees": "original"},
            "next": {"hook": "pre-forward", "modules": ["b"]},
        },
    )
    assert torch.equal(read["after", "a"].torch()[0], plain * 2)
    assert torch.equal(read["before", "a"].torch()[0], plain)
    assert torch.equal(read["next", "b"].torch()[0], torch.relu(plain * 2))


def test_an_input_is_edited_by_its_name_as_a_positional_and_as_a_keyword_argument(tmp_path: Path) -> None:
    model = Net()
    hidden = torch.relu(model.a(X)).detach()
    want = torch.nn.functional.linear(hidden * 2, model.b.weight, model.b.bias).detach()
    _, outputs = run_with(
        model, tmp_path, {"twice": {"hook": "pre-forward", "modules": ["b"], "values": ["input.0"], "edit": {"kind": "scale", "by": 2.0}}}
    )
    assert torch.equal(outputs[0], want)
    other = nn.Sequential(model.a)
    _, outputs = run_with(other, tmp_path / "b", {"zero": {"hook": "pre-forward", "modules": ["0"], "edit": {"kind": "zero"}}})
    assert torch.equal(outputs[0], model.a.bias.detach().expand(6, 8))


def test_one_leaf_of_a_dict_is_edited_and_the_dict_is_not_written_to(tmp_path: Path) -> None:
    model = Two()
    _, outputs = run_with(
        model, tmp_path, {"zero": {"modules": [""], "values": ["output.y"], "edit": {"kind": "clamp", "min": 0, "max": 0}}}
    )
    assert torch.equal(outputs[0], torch.zeros(6, 2))


def test_an_edit_of_a_value_with_several_leaves_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EditError, match=r"probe `zero` on ``: an edit needs one leaf, and the value has 2: output.y, output.x"):
        run_with(Two(), tmp_path, {"zero": {"modules": [""], "values": ["output"], "edit": {"kind": "zero"}}})


@pytest.mark.parametrize(
    ("probe", "factor"),
    [
        ({"hook": "tensor", "tensors": ["a.weight"]}, 0.5),
        ({"hook": "tensor", "tensors": ["a.weight"], "stage": "accumulated"}, 0.5),
        ({"hook": "backward", "modules": ["a"]}, 0.5),
        ({"hook": "tensor", "tensors": ["a:output"]}, 0.5),
        ({"modules": ["b"], "values": ["grad_input"]}, 0.5),
        ({"modules": ["b"], "values": ["grad_input_total"]}, 0.5),
    ],
)
def test_a_gradient_is_scaled_as_the_spec_requires(tmp_path: Path, probe: dict[str, Any], factor: float) -> None:
    model = Net()
    model(X).sum().backward()
    want = model.a.weight.grad.clone() * factor
    run_with(model, tmp_path, {"halve": {**probe, "edit": {"kind": "scale", "by": factor}}}, steps=1)
    assert torch.equal(model.a.weight.grad, want), "halves of floats are exact on the whole way"


def test_double_a_gradient_and_export_both(tmp_path: Path) -> None:
    weight = {"hook": "tensor", "tensors": ["a.weight"]}
    read, _ = run_with(
        Net(),
        tmp_path,
        {"after": weight, "double": {**weight, "edit": {"kind": "scale", "by": 2.0}}, "before": {**weight, "sees": "original"}},
    )
    assert torch.equal(read["after", "a.weight"].torch(), read["before", "a.weight"].torch() * 2)


def test_the_norm_of_a_gradient_is_bounded(tmp_path: Path) -> None:
    read, _ = run_with(
        Net(),
        tmp_path,
        {
            "clip": {"hook": "tensor", "tensors": ["a.weight"], "edit": {"kind": "clip_norm", "max_norm": 0.01}},
            "after": {"hook": "tensor", "tensors": ["a.weight"]},
        },
    )
    assert read["after", "a.weight"].torch()[0].norm() <= 0.01


def test_a_mixup_can_be_read_by_the_loss_is_stored_and_repeats_from_its_seed(tmp_path: Path) -> None:
    spec = {
        "mixup": {"hook": "forward", "modules": ["a"], "edit": {"kind": "mixup", "alpha": 0.4, "seed": 3}},
        "out": {"hook": "forward", "modules": ["a"]},
    }
    seen = []
    for name in ("one", "two"):
        torch.manual_seed(0)
        model = Net()
        random = torch.get_rng_state()
        with probes.attach(model, {"version": 1, "allow_edits": True, "probes": spec}, out=tmp_path / name) as run:
            for x in run.steps([X] * 3):
                model(x)
                drawn = run.edit("mixup")
                seen.append((drawn["permutation"].tolist(), float(drawn["lam"])))
        assert torch.equal(torch.get_rng_state(), random)
    assert seen[:3] == seen[3:]
    assert seen[0] != seen[1]
    read = probes.open(tmp_path / "one")
    assert read["mixup", "a", "edit.permutation"].torch().tolist() == [permutation for permutation, _ in seen[:3]]
    lam, permutation = read["mixup", "a", "edit.lam"].torch()[0], read["mixup", "a", "edit.permutation"].torch()[0]
    plain = Net.__new__(Net)
    torch.manual_seed(0)
    plain.__init__()
    value = plain.a(X).detach()
    parts = lam * value.double(), (1 - lam) * value[permutation].double()
    bound = after(3) * sum(part.abs() for part in parts)  # two products and a sum in float32
    assert within(read["out", "a"].torch()[0], sum(parts), bound)


def test_noise_has_its_own_generator_and_differs_from_step_to_step(tmp_path: Path) -> None:
    random = torch.get_rng_state()
    model = Net()
    after_model = torch.get_rng_state()
    _, outputs = run_with(model, tmp_path, {"noise": {"hook": "forward", "modules": ["b"], "edit": {"kind": "noise", "std": 0.1}}})
    assert torch.equal(torch.get_rng_state(), after_model)
    assert not torch.equal(random, after_model)
    assert not torch.equal(outputs[0], outputs[1])


def test_noise_differs_between_modules_and_phases(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity())
    inputs: list[Tensor] = []
    for module in model:
        module.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    when = {"phases": ["train", "eval"]}
    spec = {"noise": {"hook": "forward", "modules": ["0", "1"], "when": when, "edit": {"kind": "noise", "std": 0.1}}}
    with probes.attach(model, {"version": 1, "allow_edits": True, "probes": spec}, out=tmp_path) as run:
        for phase in ("train", "eval"):
            with run.phase(phase):
                model(X)
    changes = [after - before for before, after in pairwise(inputs) if after is not X]
    assert len(changes) == 4
    assert not any(torch.allclose(one, other, atol=1e-3) for one, other in combinations(changes, 2))


def test_a_mixup_mixes_all_modules_of_a_step_alike(tmp_path: Path) -> None:
    spec = {"mixup": {"hook": "forward", "modules": ["a", "b"], "edit": {"kind": "mixup", "alpha": 0.4}}}
    model = Net()
    with probes.attach(model, {"version": 1, "allow_edits": True, "probes": spec}, out=tmp_path) as run:
        for x in run.steps([X] * 3):
            model(x)
    read = probes.open(tmp_path)
    for drawn in ("edit.permutation", "edit.lam"):
        assert torch.equal(read["mixup", "a", drawn].torch(), read["mixup", "b", drawn].torch())


def test_a_vector_is_added_at_one_position_and_its_hash_is_in_the_manifest(tmp_path: Path) -> None:
    np.save(tmp_path / "steer.npy", np.arange(8, dtype=np.float32))
    spec = tmp_path / "steer.yaml"
    spec.write_text(
        "version: 1\nallow_edits: true\nprobes:\n"
        "  steer: {hook: forward, modules: [a], dims: [batch, unit],"
        " edit: {kind: add, from: {file: steer.npy}, scale: 2.0, at: {batch: 1}}}\n"
        "  out: {hook: forward, modules: [a]}\n"
    )
    model = Net()
    plain = model.a(X).detach()
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([X]):
            model(x)
    read = probes.open(tmp_path / "run")
    got = read["out", "a"].torch()[0]
    assert torch.equal(got[1], plain[1] + 2 * torch.arange(8.0))
    assert torch.equal(got[0], plain[0])
    assert "source_blake3" in (tmp_path / "run" / "run.json").read_text()


def test_a_value_of_a_sealed_run_is_patched_in(tmp_path: Path) -> None:
    clean = Net()
    read, _ = run_with(clean, tmp_path / "clean", {"resid": {"hook": "forward", "modules": ["a"]}}, steps=1)
    torch.manual_seed(9)
    other = Net()
    patch = {"kind": "replace", "from": {"run": str(tmp_path / "clean" / "run"), "probe": "resid"}}
    patched, _ = run_with(
        other,
        tmp_path / "patched",
        {"patch": {"hook": "forward", "modules": ["a"], "edit": patch}, "out": {"hook": "forward", "modules": ["a"]}},
    )
    assert torch.equal(patched["out", "a"].torch()[1], read["resid", "a"].torch()[0])


def test_a_source_of_another_shape_stops_training_with_the_probes_name(tmp_path: Path) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros((3, 3), dtype=np.float32))
    edit = {"kind": "replace", "from": {"file": str(tmp_path / "wrong.npy")}}
    with pytest.raises(EditError, match=r"probe `patch` on `a`: edit `replace` .* the source has shape \(3, 3\), and the value \(6, 8\)"):
        run_with(Net(), tmp_path, {"patch": {"hook": "forward", "modules": ["a"], "edit": edit}})


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({"hook": "forward", "modules": ["a"], "edit": {"kind": "clip_norm", "max_norm": 1}}, "is for gradients"),
        (
            {"hook": "tensor", "tensors": ["a.weight"], "stage": "final", "edit": {"kind": "scale", "by": 2}},
            "the optimizer has already used a `final` gradient",
        ),
        (
            {"hook": "tensor", "tensors": ["a.weight"], "values": ["data"], "edit": {"kind": "scale", "by": 2}},
            "the data of a parameter cannot be edited",
        ),
        (
            {"hook": "forward", "modules": ["a"], "edit": {"kind": "add", "from": {"file": "nowhere.npy"}}},
            "the source of the edit cannot be read",
        ),
    ],
)
def test_an_edit_that_cannot_work_is_refused_before_step_0(tmp_path: Path, probe: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        run_with(Net(), tmp_path, {"e": probe})


def test_names_of_axes_that_do_not_fit_the_value_raise_an_error(tmp_path: Path) -> None:
    edit = {"hook": "forward", "modules": ["a"], "dims": ["batch", "token", "unit"], "edit": {"kind": "scale", "by": 2}}
    with pytest.raises(EditError, match=r"`dims` names 3 axes \(batch, token, unit\), but the value has 2"):
        run_with(Net(), tmp_path, {"e": edit})


def test_two_edits_of_one_value_are_refused(tmp_path: Path) -> None:
    edit = {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 2}}
    with pytest.raises(PlanError, match="is also edited by probe `e`"):
        run_with(Net(), tmp_path, {"e": edit, "f": edit})


def test_a_deterministic_edit_is_repeated_in_a_recompute_and_a_random_one_is_refused(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    class Segmented(Net):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x.requires_grad_(), use_reentrant=False)

    model, plain = Segmented(), Net()
    plain.load_state_dict(model.state_dict())
    edit = {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 3.0}}
    run_with(model, tmp_path / "m", {"e": edit}, steps=1)
    run_with(plain, tmp_path / "p", {"e": edit}, steps=1)
    assert torch.equal(model.a.weight.grad, plain.a.weight.grad)
    with pytest.raises(EditError, match="recomputed by activation checkpointing"):
        run_with(model, tmp_path / "r", {"e": {**edit, "edit": {"kind": "noise", "std": 1}}})


class Shared(UserDict[str, Any]):
    """A mapping whose copy shares its items."""

    def __copy__(self) -> Shared:
        other = Shared()
        other.data = self.data
        return other


class Packed(nn.Module):
    """Returns a container, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Tensor) -> Any:
        self.made = Shared(x=self.inner(x))
        return self.made


def test_an_edit_in_a_container_that_has_no_independent_copy_stops_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    model = Packed()
    zero = {"modules": [""], "values": ["output.x"], "edit": {"kind": "zero"}}
    with pytest.raises(EditError, match="probe `e` on ``: a Shared cannot be rebuilt"):
        run_with(model, tmp_path, {"e": zero})
    assert torch.equal(model.made["x"], X)


@pytest.mark.parametrize("edit", [{"kind": "noise", "std": 1.0}, {"kind": "mixup", "alpha": 0.5}, {"kind": "zero", "at": {"a": [0, 1]}}])
def test_an_edit_makes_its_tensors_on_the_host_whatever_the_default_device(tmp_path: Path, edit: dict[str, Any]) -> None:
    probe = {"modules": ["a"], "values": ["output"], "dims": ["a", "b"], "edit": edit}
    _, plain = run_with(Net(), tmp_path / "plain", {"e": probe})
    torch.manual_seed(0)
    model = Net()
    with torch.device("meta"):
        _, found = run_with(model, tmp_path / "meta", {"e": probe})
    assert all(map(torch.equal, found, plain))


EDITS = {
    "zero": {"hook": "forward", "modules": ["a"], "edit": {"kind": "scale", "by": 0.5}},
    "noise": {"hook": "pre-forward", "modules": ["b"], "edit": {"kind": "noise", "std": 0.1}},
    "back": {"hook": "backward", "modules": ["b"], "values": ["grad_output"], "edit": {"kind": "scale", "by": 3.0}},
    "weight": {
        "hook": "tensor",
        "tensors": ["a.weight"],
        "values": ["grad"],
        "stage": "increment",
        "edit": {"kind": "scale", "by": 0.1},
    },
    "out": {"hook": "forward", "modules": ["a", "b"]},
}


def trained(path: Path, **more: Any) -> list[Tensor]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probes.attach(model, {"version": 1, "allow_edits": True, "probes": EDITS, **more}, out=path) as run:
        for epoch in run.epochs(2):
            for step, x in enumerate(run.steps([X] * 4)):
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()
                if (epoch, step) == (0, 2):
                    with run.suspend():
                        pass
    return [parameter.detach() for parameter in model.parameters()]


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[None] = []

    def commit(*_: Any, **__: Any) -> None:
        commits.append(None)
        if len(commits) == 2:
            raise StorageError("no space left on the disk")

    monkeypatch.setattr(Journal, "commit", commit)


@pytest.mark.parametrize("why", ["limit", "disk"])
def test_edits_continue_when_nothing_more_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    expected = trained(tmp_path / "whole")
    if why == "disk":
        failing(monkeypatch)
    found = trained(tmp_path / why, **({"limits": {"bytes_per_epoch": 300}} if why == "limit" else {}))
    assert all(map(torch.equal, found, expected))
    if why == "limit":
        run = probes.open(tmp_path / why)
        assert run.state == {0: "incomplete", 1: "incomplete"}
        assert 0 < len(run["out", "a"]) < len(probes.open(tmp_path / "whole")["out", "a"])
