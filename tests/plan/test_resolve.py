from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from torch import nn

import probes
from probes.errors import PlanError, Problem
from probes.plan.drift import node_of, renew


def net() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def problems(spec: Any, model: Any) -> tuple[Problem, ...]:
    with pytest.raises(PlanError) as caught:
        probes.resolve(spec, model)
    return caught.value.problems


def acts(path: str, **more: Any) -> dict[str, Any]:
    return {"hook": "forward", "modules": [path], **more}


def test_every_probe_of_a_missing_model_is_reported_beside_the_faults_of_the_others() -> None:
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
        plan.bindings = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.trees[""] = plan.trees[""]  # type: ignore[index]
    with pytest.raises(TypeError):
        plan.dropped["p"] = ()  # type: ignore[index]


def test_a_replaced_module_gives_new_trees_and_leaves_the_plan_as_it_was() -> None:
    model = net()
    plan = probes.resolve({"version": 1, "probes": {"p": acts("0")}}, model)
    (binding,), before = plan.bindings, model[0]
    assert renew(plan, plan.trees) == (plan.trees, {})

    model[0] = nn.Linear(4, 4)
    trees, changed = renew(plan, plan.trees)
    assert set(changed) == {0}
    assert node_of(trees, binding).module is model[0]  # type: ignore[union-attr]
    assert node_of(plan.trees, binding).module is before  # type: ignore[union-attr]
    assert renew(plan, trees) == (trees, {})
