"""Which of the modules that a script calls a spec means: by what an optimizer steps, and by what the spec says."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from torch import nn

from probes.errors import PlanError
from probes.script.model.choice import MOST_CANDIDATES, Candidate, ModelChoice, choice_for
from probes.script.model.model_rules import AnyModule, FittingModule, ModulesByClass
from probes.script.model.module_parents import ModuleParents
from probes.spec import load_spec


@pytest.fixture
def parents() -> Iterator[ModuleParents]:
    found = ModuleParents()
    found.start()
    yield found
    found.stop()


def choice(*modules: str, models: Mapping[str, Any] | None = None) -> ModelChoice:
    spec: dict[str, Any] = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": list(modules) or ["fc"]}}}
    return choice_for(load_spec({**spec, **({"models": models} if models else {})}))


def several(**models: Any) -> ModelChoice:
    probes = {name: {"hook": "forward", "modules": ["fc"], "model": name} for name in models}
    return choice_for(load_spec({"version": 1, "models": models, "probes": probes}))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


class Critic(Net):
    pass


class Generator(Net):
    pass


def call(found: ModelChoice, module: nn.Module, parents: ModuleParents, place: str = "train.py:1") -> list[Candidate]:
    return found.called(parents.line(module), parents, place)


def step(found: ModelChoice, *modules: nn.Module) -> Candidate | None:
    found.stepped({id(parameter) for module in modules for parameter in module.parameters()})
    return found.decide()


def refused(caught: pytest.ExceptionInfo[PlanError]) -> tuple[str, str, str]:
    (problem,) = caught.value.problems
    return problem.code, problem.message, problem.hint


# Which modules fit


def test_exact_paths_fit_the_tree_they_are_written_for(parents: ModuleParents) -> None:
    net = Net()
    top = nn.ModuleDict({"net": net})
    assert [one.model for one in call(choice("net.fc"), net, parents)] == [top]
    assert [one.model for one in call(choice("fc"), net, parents)] == [net]


def test_a_pattern_that_fits_several_trees_selects_the_topmost(parents: ModuleParents) -> None:
    net = Net()
    top = nn.ModuleDict({"net": net})
    assert [one.model for one in call(choice("**.fc"), net, parents)] == [top]


def test_a_pattern_does_not_select_a_tree_without_parameters_as_a_model(parents: ModuleParents) -> None:
    images = nn.Sequential(nn.Flatten(), nn.ReLU())
    assert call(choice("*"), images, parents) == []
    assert [one.model for one in call(choice("0"), images, parents)] == [images]


def test_the_problems_are_those_of_the_tree_with_the_fewest(parents: ModuleParents) -> None:
    found = choice("fc", "head")
    for module in (nn.ReLU(), Net(), nn.Sequential(Net(), Net())):
        assert call(found, module, parents) == []
    assert [problem.message for problem in found.rule.problems] == ["probe `acts`: the model has no module `head`"]


def test_without_a_spec_every_tree_with_parameters_is_a_candidate(parents: ModuleParents) -> None:
    found = ModelChoice(AnyModule())
    assert call(found, nn.ReLU(), parents) == []
    assert len(call(found, Net(), parents)) == 1


def test_a_module_in_a_wrapper_is_not_another_candidate(parents: ModuleParents) -> None:
    net, found = Net(), choice("fc")
    assert len(call(found, net, parents)) == 1
    assert call(found, nn.DataParallel(net), parents) == []


# Which of them is meant


def test_the_model_is_the_one_that_an_optimizer_steps_and_not_the_first_called(parents: ModuleParents) -> None:
    student, found = Net(), choice("fc")
    teacher = copy.deepcopy(student)
    call(found, teacher, parents)
    call(found, student, parents)
    assert found.decide() is None
    chosen = step(found, student)
    assert chosen is not None
    assert chosen.model is student


def test_steps_of_models_that_do_not_fit_do_not_select_a_model(parents: ModuleParents) -> None:
    net, found = Net(), choice("fc")
    call(found, net, parents)
    assert step(found, nn.Linear(2, 2)) is None
    assert found.at_end() is found.candidates[0]


def test_the_larger_of_two_nested_models_is_captured_if_both_are_stepped(parents: ModuleParents) -> None:
    net, found = Net(), choice("**.fc", "fc")
    found = choice("**")
    call(found, net, parents)
    whole = nn.ModuleDict({"net": net, "head": nn.Linear(2, 1)})
    call(found, whole, parents)
    chosen = step(found, whole)
    assert chosen is not None
    assert chosen.model is whole


def test_several_models_of_one_optimizer_are_refused_with_the_line_to_write(parents: ModuleParents) -> None:
    one, other, found = Net(), Net(), choice("fc")
    call(found, one, parents, "train.py:1")
    call(found, other, parents, "train.py:2")
    with pytest.raises(PlanError) as caught:
        step(found, one, other)
    code, message, hint = refused(caught)
    assert code == "ambiguous-model"
    assert message == (
        "2 modules of the script fit the spec, and optimizers step several of them: "
        "Net (first called at train.py:1); Net (first called at train.py:2)"
    )
    assert hint == "select one, such as `models: {model: {class: Net, instance: 1}}`"


def test_without_a_step_the_only_candidate_is_the_model_and_several_are_refused(parents: ModuleParents) -> None:
    found = choice("fc")
    call(found, Critic(), parents)
    assert found.at_end() is found.candidates[0]
    found = choice("fc")
    first, second = Net(), Critic()
    call(found, first, parents)
    call(found, second, parents)
    with pytest.raises(PlanError) as caught:
        found.at_end()
    assert "no optimizer stepped one of them" in refused(caught)[1]
    assert refused(caught)[2] == "select one, such as `models: {model: Critic}`"


def test_more_candidates_than_the_limit_are_counted(parents: ModuleParents) -> None:
    found = choice("fc")
    nets = [Net() for _ in range(MOST_CANDIDATES + 2)]
    for net in nets:
        call(found, net, parents)
    assert (len(found.candidates), found.left_out) == (MOST_CANDIDATES, 2)
    with pytest.raises(PlanError, match="and 2 more"):
        found.at_end()


# What the spec says


def test_an_instance_is_counted_in_the_order_of_first_calls(parents: ModuleParents) -> None:
    found = choice("fc", models={"student": {"class": "Net", "instance": 1}})
    teacher, student = Net(), Net()
    assert call(found, teacher, parents) == call(found, teacher, parents) == []
    (candidate,) = call(found, student, parents)
    assert found.chosen is candidate
    assert candidate.model is student


def test_trained_refuses_a_script_in_which_no_optimizer_steps_the_model(parents: ModuleParents) -> None:
    found = choice("fc", models={"student": {"class": "Net", "trained": True}})
    net = Net()
    call(found, net, parents)
    with pytest.raises(PlanError, match="`trained: true`"):
        found.at_end()
    chosen = step(found, net)
    assert chosen is found.at_end() is not None


def test_a_class_alone_is_the_instance_that_is_stepped(parents: ModuleParents) -> None:
    found = choice("fc", models={"student": "Net"})
    teacher, student = Net(), Net()
    call(found, teacher, parents)
    call(found, student, parents)
    chosen = step(found, student)
    assert chosen is not None
    assert chosen.model is student


def test_several_models_are_found_together_once_one_is_called(parents: ModuleParents) -> None:
    generator, critic = Generator(), Critic()
    nn.ModuleList([generator, critic])
    found = several(g="Generator", c="Critic")
    (candidate,) = call(found, critic, parents)
    assert candidate.models == {"g": generator, "c": critic}
    chosen = step(found, critic)
    assert chosen is candidate


def test_the_stepped_instance_of_each_of_several_models_is_captured(parents: ModuleParents) -> None:
    generator, critic = Generator(), Critic()
    average = copy.deepcopy(generator)
    found = several(g="Generator", c="Critic")
    for module in (average, critic, generator):
        call(found, module, parents)
    assert step(found, critic) is None
    chosen = step(found, generator)
    assert chosen is not None
    assert chosen.models == {"g": generator, "c": critic}


def test_a_spec_that_names_one_model_needs_no_name_on_its_probes(parents: ModuleParents) -> None:
    net = Net()
    assert [one.model for one in call(choice("fc", models={"m": "Net"}), net, parents)] == [net]
    assert [one.model for one in call(several(m="Net"), net, parents)] == [{"m": net}]


def test_classes_that_were_never_called_are_named(parents: ModuleParents) -> None:
    found = several(g="Generator", c="Critic")
    call(found, Critic(), parents)
    assert [problem.message for problem in found.rule.problems] == ["model `g`: no instance of class `Generator` was called"]
    assert found.at_end() is None


def test_a_spec_without_models_waits_for_any_model_that_fits() -> None:
    assert isinstance(choice("fc").rule, FittingModule)
    assert isinstance(choice("fc", models={"m": "Net"}).rule, ModulesByClass)
    assert ModulesByClass({}).patient
    assert not choice("fc").rule.patient


def instances(**numbers: int | None) -> ModelChoice:
    return several(**{name: "Net" if number is None else {"class": "Net", "instance": number} for name, number in numbers.items()})


def test_names_of_one_class_are_the_instances_that_the_spec_numbers(parents: ModuleParents) -> None:
    teacher, first, second, found = Net(), Net(), Net(), instances(a=1, b=2)
    assert call(found, teacher, parents) == []
    (candidate,) = call(found, first, parents)
    assert candidate.models == {"a": first, "b": second}
    assert call(found, second, parents) == []
    assert found.chosen is candidate


def test_an_instance_that_is_not_built_yet_is_not_another_one(parents: ModuleParents) -> None:
    first, found = Net(), instances(a=0, b=1)
    assert call(found, first, parents) == []
    second = Net()
    (candidate,) = call(found, second, parents)
    assert candidate.models == {"a": first, "b": second}


def test_an_instance_that_another_one_is_called_before_is_not_the_next(parents: ModuleParents) -> None:
    first, never_called, found = Net(), Net(), instances(a=0, b=1)
    call(found, first, parents)
    second = Net()
    call(found, second, parents)
    assert found.chosen is not None
    assert found.chosen.models == {"a": first, "b": second}
    assert never_called is not second


def test_a_name_without_an_instance_is_not_the_one_that_another_name_selects(parents: ModuleParents) -> None:
    first, second, found = Net(), Net(), instances(a=0, b=None)
    call(found, first, parents)
    call(found, second, parents)
    chosen = step(found, first)
    assert chosen is not None
    assert chosen.models == {"a": first, "b": second}


@pytest.mark.parametrize("number", [None, 0])
def test_names_that_mean_one_module_are_refused_at_its_first_call(parents: ModuleParents, number: int | None) -> None:
    with pytest.raises(PlanError) as caught:
        call(instances(a=number, b=number), Net(), parents)
    code, message, hint = refused(caught)
    assert code == "ambiguous-model"
    assert message == "models `a` and `b` both mean the same Net (first called at train.py:1)"
    assert hint.endswith("`models: {a: {class: Net, instance: 0}, b: {class: Net, instance: 1}}`")
