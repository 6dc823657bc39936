from collections.abc import Iterator

import pytest
from torch import nn

from probes.errors import Problem
from probes.script.model_choice import FittingTree, ModelChoice, ModelsByClass, TreeWithParameters, choice_for, refusal
from probes.script.module_parents import ModuleParents
from probes.spec import load_spec


@pytest.fixture
def parents() -> Iterator[ModuleParents]:
    found = ModuleParents()
    found.start()
    yield found
    found.stop()


def fitting(*modules: str) -> ModelChoice:
    return choice_for(load_spec({"version": 1, "probes": {"acts": {"hook": "forward", "modules": list(modules)}}}))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: object) -> object:
        return self.fc(x)


def test_exact_paths_choose_the_tree_they_are_written_for(parents: ModuleParents) -> None:
    net = Net()
    top = nn.ModuleDict({"net": net})
    line = parents.line(net)
    assert fitting("net.fc").of(line, parents) is top
    assert fitting("fc").of(line, parents) is net


def test_a_pattern_that_fits_several_trees_means_the_topmost(parents: ModuleParents) -> None:
    net = Net()
    top = nn.ModuleDict({"net": net})
    assert fitting("**.fc").of(parents.line(net), parents) is top


def test_a_pattern_does_not_take_a_tree_without_parameters_for_a_model(parents: ModuleParents) -> None:
    images = nn.Sequential(nn.Flatten(), nn.ReLU())
    assert fitting("*").of([images], parents) is None
    assert fitting("0").of([images], parents) is images


def test_the_problems_told_are_those_of_the_tree_that_came_closest(parents: ModuleParents) -> None:
    choice = fitting("fc", "head")
    for module in (nn.ReLU(), Net(), nn.Sequential(Net(), Net())):
        assert choice.of([module], parents) is None
    assert [problem.message for problem in choice.problems] == ["probe `acts`: the model has no module `head`"]


def test_named_models_are_bound_together_once_one_is_called(parents: ModuleParents) -> None:
    class Generator(Net):
        pass

    class Critic(Net):
        pass

    generator, critic = Generator(), Critic()
    choice = ModelsByClass({"g": "Generator", "c": "Critic"})
    assert choice.of([nn.ReLU()], parents) is None
    assert choice.of([generator], parents) == {"g": generator, "c": critic}


def test_a_class_with_two_instances_waits_for_the_one_that_is_called(parents: ModuleParents) -> None:
    class Generator(Net):
        pass

    class Critic(Net):
        pass

    generator, first, second = Generator(), Critic(), Critic()
    choice = ModelsByClass({"g": "Generator", "c": "Critic"})
    assert choice.of([generator], parents) is None
    assert [problem.path for problem in choice.problems] == ["models.c"]
    assert choice.of([second], parents) == {"g": generator, "c": second}
    assert first is not second


def test_without_a_spec_the_first_tree_with_parameters_is_the_model(parents: ModuleParents) -> None:
    net = Net()
    assert TreeWithParameters().of([nn.ReLU()], parents) is None
    assert TreeWithParameters().of([net], parents) is net


def test_only_a_spec_that_names_its_models_is_patient() -> None:
    assert not isinstance(fitting("fc"), ModelsByClass)
    assert isinstance(fitting("fc"), FittingTree)
    assert not fitting("fc").patient
    assert ModelsByClass({}).patient


def test_a_refusal_lists_what_was_seen() -> None:
    error = refusal((Problem("x", "y"),), [])
    assert [problem.code for problem in error.problems] == ["x", "no-model-fits"]
