import copy
import gc
from collections.abc import Iterator

import pytest
from torch import nn

from probes.script.model.module_parents import ModuleParents, is_called


@pytest.fixture
def parents() -> Iterator[ModuleParents]:
    found = ModuleParents()
    found.start()
    yield found
    found.stop()


def test_the_parents_of_a_module_are_listed_up_to_the_root(parents: ModuleParents) -> None:
    leaf = nn.Linear(1, 1)
    middle = nn.ModuleList([leaf])
    top = nn.ModuleDict({"a": middle})
    assert parents.line(leaf) == [top, middle, leaf]
    assert parents.line(top) == [top]


def test_a_removed_module_has_no_parent(parents: ModuleParents) -> None:
    holder, leaf = nn.Module(), nn.Linear(1, 1)
    holder.part = leaf
    del holder.part
    assert parents.line(leaf) == [leaf]


def test_a_module_in_two_others_has_both_above_it(parents: ModuleParents) -> None:
    shared = nn.Linear(1, 1)
    first, second = nn.Sequential(shared), nn.Sequential(shared)
    assert parents.line(shared) == [second, first, shared]


def test_nothing_is_kept_alive(parents: ModuleParents) -> None:
    class Kept(nn.Sequential):
        pass

    Kept(nn.Linear(1, 1))
    gc.collect()
    assert parents.of_class("Kept") == []


def test_live_modules_are_found_by_class_out_of_their_wrappers(parents: ModuleParents) -> None:
    class Own(nn.Sequential):
        pass

    own = Own(nn.Linear(1, 1))
    wrapped = nn.DataParallel(own)
    assert parents.of_class("Own") == [own, wrapped]
    assert is_called(wrapped, "Sequential")
    assert not is_called(copy.deepcopy(own), "Linear")
