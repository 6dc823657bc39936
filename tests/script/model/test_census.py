"""The models that a script calls, counted: those that come and go are one line, and a shallow copy is no model of its own."""

from __future__ import annotations

import copy
import gc

import torch
from torch import nn

from probes.script.model.census import ModelCensus


def test_deleted_copies_are_one_record() -> None:
    census = ModelCensus()
    for _ in range(100):
        root = nn.Linear(2, 1)
        census.add(root, "check.py:3").calls += 1
        del root
        gc.collect(0)
    assert len(census.models) <= 2
    assert census.lines() == ["model  Linear (100 instances)  first called at check.py:3  100 calls  no optimizer step  not captured"]


def test_copies_of_which_several_exist_at_a_time_are_few_records() -> None:
    census, alive = ModelCensus(), []
    for index in range(100):
        alive = [*alive[-2:], nn.Linear(2, 1)]
        census.add(alive[-1], f"check.py:{index % 2}").calls += 1
    assert len(census.models) <= 2 + 3  # a record of those that are gone for each place, and those that exist
    assert sorted((one["instances"], one["calls"]) for one in census.as_dicts()) == [(50, 50), (50, 50)]


def test_a_model_that_follows_on_copies_has_a_separate_record() -> None:
    census = ModelCensus()
    for _ in range(3):
        census.add(nn.Linear(2, 1), "train.py:3").calls += 1
        gc.collect(0)
    root = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(root.parameters(), lr=0.1)
    census.stepped(optimizer)  # before its first call
    census.add(root, "train.py:3").calls += 7
    census.stepped(optimizer)
    assert [(one["instances"], one["calls"], one["optimizer_steps"]) for one in census.as_dicts()] == [(3, 3, 0), (1, 7, 1)]


def test_existing_copies_that_were_not_trained_are_one_line() -> None:
    census = ModelCensus()
    roots = [nn.Linear(2, 1) for _ in range(3)]
    for root in roots:
        census.add(root, "check.py:3").calls += 2
    census.stepped(torch.optim.SGD(roots[1].parameters(), lr=0.1))
    assert census.lines() == [
        "model  Linear (2 instances)  first called at check.py:3  4 calls  no optimizer step  not captured",
        "model  Linear                first called at check.py:3  2 calls  1 optimizer step   not captured",
    ]
    assert [(one["instances"], one["calls"], one["optimizer_steps"]) for one in census.as_dicts()] == [(2, 4, 0), (1, 2, 1)]


def test_a_trained_model_that_was_deleted_keeps_its_record() -> None:
    census = ModelCensus()
    for _ in range(2):
        root = nn.Linear(2, 1)
        census.add(root, "folds.py:3").calls += 1
        census.stepped(torch.optim.SGD(root.parameters(), lr=0.1))
    assert [(model.calls, model.steps) for model in census.models] == [(1, 1), (1, 1)]


def test_a_shallow_copy_of_a_trained_model_is_not_a_further_model() -> None:
    root, other = nn.Sequential(nn.Linear(2, 1)), nn.Linear(2, 1)
    census = ModelCensus()
    for one in (root, copy.copy(root), other):
        census.add(one, "train.py:1")
    view = copy.copy(root)
    census.add(view, "train.py:2")
    census.stepped(torch.optim.SGD([*root.parameters(), *other.parameters()], lr=0.1))
    assert [(model.kind, model.shares) for model in census.models if model.steps] == [
        ("Sequential", False),
        ("Linear", False),
        ("Sequential", True),
    ]


def test_a_part_that_was_called_alone_before_is_named_as_a_part() -> None:
    part = nn.Linear(2, 1)
    whole = nn.Sequential(part)
    census = ModelCensus()
    for root in (part, whole):
        census.add(root, "train.py:3").calls += 1
    census.capture([whole])
    census.stepped(torch.optim.SGD(whole.parameters(), lr=0.1))
    assert [line.split("  ")[-1] for line in census.lines()] == ["part of Sequential", "captured"]


def test_a_compiled_model_has_the_name_of_the_model_that_was_compiled() -> None:
    census, inner, compiled = ModelCensus(), nn.Sequential(nn.Linear(2, 2)), nn.Module()
    compiled.add_module("_orig_mod", inner)  # as in the wrapper of `torch.compile`
    census.add(compiled, "train.py:3").calls = 1
    assert [str(one) for one in census.models] == ["Sequential (2 modules, first called at train.py:3)"]
    census.capture([inner])
    assert census.lines() == ["model  Sequential  first called at train.py:3  1 call  no optimizer step  captured"]
