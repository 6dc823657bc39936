"""Canonical paths of a model's modules and tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from probes.plan.tree import Tree, canonical, join


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(2, 1)])
        self.tied = self.features[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.heads[0](self.features(x))


def test_every_module_has_a_path_and_the_root_has_the_empty_path() -> None:
    tree = Tree(Net())
    assert list(tree.nodes) == ["", "features", "features.0", "features.1", "heads", "heads.0", "tied"]


def test_a_module_with_two_names_matches_once_and_has_an_alias() -> None:
    tree = Tree(Net())
    assert tree.aliases(tree.nodes["features.0"]) == ("tied",)
    assert "tied" not in [node.path for node in tree.runnable()]
    assert tree.first(tree.nodes["tied"]).path == "features.0"


def test_a_container_without_forward_is_not_runnable() -> None:
    tree = Tree(Net())
    assert not tree.nodes["heads"].runs
    assert tree.nodes["features"].runs


def test_data_parallel_is_stripped_and_recorded() -> None:
    tree = Tree(nn.DataParallel(Net()))
    assert tree.nodes["features.0"].raw == "module.features.0"
    assert [type(wrapper).__name__ for wrapper in tree.root.wrappers] == ["DataParallel"]
    assert tree.root.kind == "Net"


def test_a_child_that_the_user_named_module_keeps_its_name() -> None:
    class Owner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)

    assert list(Tree(Owner()).nodes) == ["", "module"]


def test_a_compiled_model_and_a_compiled_part_keep_the_plain_paths() -> None:
    net = Net()
    net.features = torch.compile(net.features, backend="eager")  # type: ignore[assignment]  # it is called alike
    tree = Tree(torch.compile(net, backend="eager"))  # type: ignore[arg-type]  # a compiled module is one
    assert tree.nodes["features.0"].raw == "_orig_mod.features._orig_mod.0"
    assert tree.nodes["features"].compiled
    assert not tree.nodes["features.0"].compiled


def test_parameters_and_buffers_are_found_without_running_a_parametrization() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    tensors = Tree(layer).tensors()
    assert "parametrizations.weight.original" in tensors
    assert "weight" not in tensors
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


@pytest.mark.parametrize(("raw", "plain"), [("_orig_mod.a.b", "a.b"), ("a._checkpoint_wrapped_module.b", "a.b"), ("module.a", "module.a")])
def test_levels_that_only_wrappers_have_are_removed_from_a_path(raw: str, plain: str) -> None:
    assert canonical(raw) == plain


def test_paths_are_joined_with_dots_below_the_root() -> None:
    assert (join("", "a"), join("a", "b")) == ("a", "a.b")
