from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from probes.plan.tree import Tree
from probes.runner.watch.model_changes import ModelChanges


def test_an_optimizer_whose_parameters_were_replaced_counts_until_the_epoch_ends() -> None:
    model, changes = nn.Linear(2, 2), ModelChanges()
    changes.renew([Tree(model)], [Tree(model)], keep=False)
    before = torch.optim.SGD(model.parameters(), lr=0.1)
    assert changes.owns(before)
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
    changes.renew([Tree(model)], [Tree(model)], keep=True)
    assert changes.owns(before)
    assert changes.owns(torch.optim.SGD(model.parameters(), lr=0.1))
    changes.renew([Tree(model)], [Tree(model)], keep=False)
    assert not changes.owns(before)


def test_a_tensor_that_gets_the_id_of_a_replaced_parameter_is_not_taken_for_it() -> None:
    model, changes = nn.Linear(2, 2), ModelChanges()
    changes.renew([Tree(model)], [Tree(model)], keep=False)
    known = {id(parameter) for parameter in model.parameters()}
    model.weight, model.bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    changes.renew([Tree(model)], [Tree(model)], keep=True)
    assert changes._owned.isdisjoint(known - {id(parameter) for parameter in model.parameters()})
    other: Any = SimpleNamespace(param_groups=[{"params": [nn.Parameter(torch.ones(1))]}])
    assert not changes._holds(other)
