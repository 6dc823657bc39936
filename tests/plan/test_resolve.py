from __future__ import annotations

from dataclasses import FrozenInstanceError
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.errors import PlanError, Problem
from probes.plan.drift import added, node_of, renew
from probes.plan.reasons import reasons


def net() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def problems(spec: Any, model: Any) -> tuple[Problem, ...]:
    with pytest.raises(PlanError) as caught:
        probes.resolve(spec, model)
    return caught.value.problems


def acts(path: str, **more: Any) -> dict[str, Any]:
    return {"hook": "forward", "modules": [path], **more}


def test_every_probe_of_a_missing_model_is_reported_together_with_other_faults() -> None:
    spec = {
        "version": 1,
        "models": {"g": "G", "d": "D"},
        "probes": {
            "a": acts("nowhere", model="g"),
            "b": acts("x", model="d"),
            "c": acts("x", model="d"),
            "e": acts("nothing", model="g"),
        },
    }
    found = [(problem.path, problem.code) for problem in problems(spec, {"g": net()})]
    assert sorted(found) == [
        ("probes.a.modules.0", "unknown-module"),
        ("probes.b", "unknown-model"),
        ("probes.c", "unknown-model"),
        ("probes.e.modules.0", "unknown-module"),
    ]


def test_a_plan_cannot_be_changed() -> None:
    plan = probes.resolve({"version": 1, "probes": {"p": acts("0")}}, net())
    with pytest.raises(FrozenInstanceError):
        plan.bindings = ()  # type: ignore[misc]  # the test tries to change it
    with pytest.raises(TypeError):
        plan.trees[""] = plan.trees[""]  # type: ignore[index]  # the test tries to change it
    with pytest.raises(TypeError):
        plan.dropped["p"] = ()  # type: ignore[index]  # the test tries to change it


def test_a_replaced_module_gives_new_trees_and_leaves_the_plan_as_it_was() -> None:
    model = net()
    plan = probes.resolve({"version": 1, "probes": {"p": acts("0")}}, model)
    (binding,), before = plan.bindings, model[0]
    assert renew(plan, plan.trees) == (plan.trees, {})

    model[0] = nn.Linear(4, 4)
    trees, changed = renew(plan, plan.trees)
    assert set(changed) == {0}
    assert node_of(trees, binding).module is model[0]  # type: ignore[union-attr]  # the node exists
    assert node_of(plan.trees, binding).module is before  # type: ignore[union-attr]  # the node exists
    assert renew(plan, trees) == (trees, {})


def notes(spec: Any, model: Any) -> dict[str, str]:
    return {note.code: note.message for note in probes.resolve(spec, model).notes}


def one(**probe: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {"p": probe}}


@pytest.mark.parametrize(
    ("probe", "target"),
    [
        ({"hook": "forward", "modules": ["module.0"]}, "0"),
        ({"hook": "forward", "modules": ["module.*"]}, "0"),
        ({"hook": "forward", "modules": ["module"]}, ""),
        ({"hook": "tensor", "tensors": ["module.0.weight"]}, "0.weight"),
        ({"hook": "tensor", "tensors": ["module.*.weight"]}, "0.weight"),
        ({"hook": "tensor", "tensors": ["module.0:output"]}, "0"),
    ],
)
def test_a_path_as_named_modules_gives_it_is_accepted_and_noted(probe: dict[str, Any], target: str) -> None:
    model = nn.DataParallel(net())
    assert any(name == "module.0" for name, _ in model.named_modules())
    plan = probes.resolve(one(**probe), model)
    assert plan.bindings[0].target == target
    assert [note.code for note in plan.notes] == ["wrapped-path"]
    assert f"`{target}`" in plan.notes[0].message


@pytest.mark.parametrize(
    ("probe", "kept"),
    [
        ({"hook": "forward", "modules": ["**"], "exclude": ["module.0"]}, ["1"]),
        ({"hook": "forward", "modules": ["module.*"], "exclude": ["module.0"]}, ["1"]),
        ({"hook": "tensor", "tensors": ["*.weight"], "exclude": ["module.0.**"]}, ["1.weight"]),
    ],
)
def test_exclude_takes_paths_as_named_modules_gives_them(probe: dict[str, Any], kept: list[str]) -> None:
    plan = probes.resolve(one(**probe), nn.DataParallel(net()))
    assert [binding.target for binding in plan.bindings] == kept


def shared() -> Any:
    inner = nn.Linear(2, 2)
    return nn.ModuleDict({"student": nn.Sequential(inner, nn.ReLU()), "teacher": nn.Sequential(inner, nn.Tanh())})


@pytest.mark.parametrize(
    ("selection", "targets"),
    [
        ({"modules": ["**"]}, {"student", "student.0", "student.1", "teacher", "teacher.1"}),
        ({"modules": ["**"], "exclude": ["student", "student.**"]}, {"teacher", "teacher.0", "teacher.1"}),
        ({"modules": ["**"], "exclude": ["teacher.**"]}, {"student", "student.0", "student.1", "teacher"}),
    ],
)
def test_a_shared_module_is_captured_under_the_first_path_that_is_not_excluded(selection: dict[str, Any], targets: set[str]) -> None:
    plan = probes.resolve(one(hook="forward", **selection), shared())
    assert {binding.target for binding in plan.bindings} == targets
    for alias in ("student.0", "teacher.0"):
        (found,) = [binding.target for binding in plan.bindings if binding.target.endswith(".0")]
        assert reasons(plan, alias) == [("p", "yes: output" + ("" if alias == found else f", under its path `{found}`"))]


def test_an_added_tensor_that_is_excluded_is_not_reported() -> None:
    model = net()
    plan = probes.resolve(one(hook="tensor", tensors=["**"], exclude=["**.bias"]), model)
    model.append(nn.Linear(2, 2))
    assert added(plan, plan.trees, renew(plan, plan.trees, again=True)[0]) == {"p": ["2.weight"]}


def test_a_canonical_path_is_not_noted() -> None:
    assert notes(one(hook="forward", modules=["0", "*"]), nn.DataParallel(net())) == {}


class OfClass(nn.Module):
    forward = torch.relu


class Partial(nn.Module):
    forward = partial(torch.clamp, min=0)


class Static(nn.Module):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def of_object() -> nn.Module:
    module = nn.Linear(4, 4)
    module.forward = torch.relu  # type: ignore[method-assign]  # the test replaces the method
    return module


@pytest.mark.parametrize("make", [OfClass, Partial, of_object])
@pytest.mark.parametrize("values", [["input"], ["input.0"], ["grad_input_total"], ["input", "output"]])
def test_inputs_of_a_forward_without_a_signature_have_positions(make: Any, values: list[str], tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), make())
    spec = one(modules=["1"], values=values)
    assert "positions only" in notes(spec, model)["inputs-without-names"]
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.epoch(0), run.step():
        model(torch.ones(2, 4)).sum().backward()
    leaves = {key.leaf for key in (one.key for one in probes.open(tmp_path / "run").series)}
    assert f"{values[0].partition('.')[0]}.args.0" in leaves


def test_a_forward_with_a_signature_is_not_noted() -> None:
    assert notes(one(modules=["*"], values=["input"]), nn.Sequential(Static())) == {}
    assert notes(one(modules=["*"], values=["output"]), nn.Sequential(OfClass())) == {}


def frozen() -> Any:
    model = net()
    model[0].requires_grad_(False)
    return model


def train(model: Any, spec: Any, out: Path, epochs: int, unfreeze_at: int) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probes.attach(model, spec, out=out) as run:
        for epoch in run.epochs(epochs):
            model[0].requires_grad_(epoch >= unfreeze_at)
            for _ in run.steps(range(2)):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
    return run


@pytest.mark.parametrize("stage", ["increment", "accumulated", "final"])
def test_a_parameter_that_is_unfrozen_later_is_captured_from_the_next_epoch(stage: str, tmp_path: Path) -> None:
    model = frozen()
    spec = one(hook="tensor", tensors=["*.weight"], stage=stage)
    assert "`0.weight`" in notes(spec, model)["frozen-parameter"]
    run = train(model, spec, tmp_path / "run", epochs=3, unfreeze_at=1)
    found = {one.key.target: {capture.clock.epoch for capture in one} for one in probes.open(tmp_path / "run").series}
    assert found["1.weight"] == {0, 1, 2}
    assert 2 in found["0.weight"]
    assert 0 not in found["0.weight"]
    assert "frozen" in str(run.summary())


def test_a_parameter_that_stays_frozen_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(probes.errors.RunError, match="frozen"):
        train(frozen(), one(hook="tensor", tensors=["0.*"]), tmp_path / "run", epochs=1, unfreeze_at=9)


def test_a_frozen_parameter_by_its_exact_path_needs_a_schedule_that_begins_later(tmp_path: Path) -> None:
    spec = one(hook="tensor", tensors=["0.weight"])
    assert [problem.code for problem in problems(spec, frozen())] == ["frozen-parameter"]
    spec["probes"]["p"]["when"] = {"epochs": {"from": 1}}
    train(frozen(), spec, tmp_path / "run", epochs=3, unfreeze_at=0)
    assert len(probes.open(tmp_path / "run")["p", "0.weight"]) == 4


def test_a_buffer_never_has_a_gradient() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4))
    assert "no gradient is possible" in notes(one(hook="tensor", tensors=["**"]), model)["frozen-parameter"]
    (problem,) = problems(one(hook="tensor", tensors=["0.running_mean"], when={"epochs": {"from": 1}}), model)
    assert "never has a gradient" in problem.message


class SelfAttention(nn.Module):
    """An attention, by its class only."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.query(x)


class EncoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixer = SelfAttention()
        self.antenna = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList(EncoderBlock() for _ in range(2))
        self.attn_scale = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("layer.1.attn", "layer.1.mixer"),  # by its class, although `layer.1.antenna` has more of the letters
        ("layers.0.attention.query", "layer.0.mixer.query"),
        ("layer.1.nrom", "layer.1.norm"),
        ("layer.0.layernorm", "layer.0.norm"),
        ("layer.1.mixer.qury", "layer.1.mixer.query"),
    ],
)
def test_a_suggestion_compares_the_place_and_the_class_before_the_letters(written: str, meant: str) -> None:
    with pytest.raises(PlanError, match=f"did you mean `{meant}`"):
        probes.resolve({"version": 1, "probes": {"p": {"hook": "forward", "modules": [written]}}}, Encoder())


def test_a_number_that_does_not_exist_is_not_replaced_by_another() -> None:
    with pytest.raises(PlanError) as found:
        probes.resolve({"version": 1, "probes": {"p": {"hook": "forward", "modules": ["layer.7.norm"]}}}, nn.Sequential(nn.Linear(2, 2)))
    assert "did you mean" not in str(found.value)


@pytest.mark.parametrize("version", ["2.6.0+cu124", "2.11.1"])
def test_a_compiled_model_of_an_old_torch_is_refused_in_a_sentence(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}
    assert probes.resolve(spec, model)
    model.compile(backend="eager")
    with pytest.raises(PlanError, match=r"torch 2.* drops hooks from compiled graphs") as refused:
        probes.resolve(spec, model)
    assert refused.value.problems[0].code == "old-compiler"
    assert "install torch 2.12 or later" in refused.value.problems[0].hint


class FarSelfAttention(nn.Module):
    """The attention itself."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.query(x) * self.key(x)
        return found


class FarAttention(nn.Module):
    """Holds the attention, and has the letters of more names."""

    def __init__(self) -> None:
        super().__init__()
        self.self, self.output = FarSelfAttention(), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.output(self.self(x))
        return found


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("MultiheadAttention", "FarSelfAttention"),
        ("GPT2Attention", "FarSelfAttention"),
        ("FarAttenton", "FarAttention"),
        ("Lineer", "Linear"),
    ],
)
def test_an_unknown_class_is_answered_with_a_class_of_the_same_kind(asked: str, meant: str) -> None:
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["**"], "types": [asked]}}}
    with pytest.raises(PlanError, match=f"did you mean `{meant}`?"):
        probes.resolve(spec, nn.Sequential(FarAttention(), FarAttention()))
