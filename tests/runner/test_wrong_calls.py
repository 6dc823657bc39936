"""Calls of a run that cannot be meant: each is refused before anything is lost, and numbers of other libraries are numbers."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import probes
from probes.errors import UsageError
from tests.warm import programs

SPEC = {"version": 1, "probes": {"p": {"modules": ["0"], "values": ["output"], "when": {"phases": ["train", "eval"]}}}}
X = torch.ones(2, 3)


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU())


@pytest.mark.parametrize("number", [2, np.int64(2), np.uint8(2), torch.tensor(2), torch.tensor([2], dtype=torch.int32)])
def test_epochs_and_counts_may_be_numbers_of_other_libraries(number: Any, tmp_path: Path) -> None:
    net = model()
    with probes.attach(net, SPEC, out=tmp_path / "run") as run:
        for _ in run.epochs(number):
            for x in run.steps([X] * 4, accumulate=number):
                net(x).sum().backward()
        with run.epoch(number), run.step():
            net(X).sum().backward()
    clocks = probes.open(tmp_path / "run")["p", "0"].clocks
    assert list(zip(clocks["epoch"].tolist(), clocks["step"].tolist(), clocks["microstep"].tolist(), strict=True)) == [
        *((epoch, step, microstep) for epoch in range(2) for step in range(2) for microstep in range(2)),
        (2, 0, 0),
    ]
    assert probes.verify(tmp_path / "run").ok


WRONG = ["1", 1.0, None, -1, 10**9, 10**30, [1], np.array([1, 2]), torch.tensor([1, 2]), torch.tensor(1.0), np.float32(1)]


@pytest.mark.parametrize("number", WRONG, ids=repr)
def test_values_other_than_whole_numbers_are_refused_and_the_run_continues(number: Any, tmp_path: Path) -> None:
    net = model()
    with probes.attach(net, SPEC, out=tmp_path / "run") as run:
        with pytest.raises(UsageError, match="the number of an epoch is a whole number from 0"), run.epoch(number):
            pass
        with pytest.raises(UsageError, match="the number of epochs is a whole number"):
            next(run.epochs(number))
        if number is not None:
            with pytest.raises(UsageError, match="the first epoch is a whole number"):
                next(run.epochs(2, start=number))
        with pytest.raises(UsageError, match="`accumulate` is a whole number from 1"):
            next(run.steps([X], accumulate=number))
        with run.epoch(0), run.step():
            net(X).sum().backward()
    assert len(probes.open(tmp_path / "run")["p", "0"]) == 1


@pytest.mark.parametrize("name", ["", 3, None, b"eval"])
def test_a_phase_is_named_by_a_text(name: Any, tmp_path: Path) -> None:
    net = model()
    with probes.attach(net, SPEC, out=tmp_path / "run") as run, run.epoch(0):
        with pytest.raises(UsageError, match="the name of a phase is a text"), run.phase(name):
            pass
        with run.phase(np.str_("eval")):
            net(X)
    assert [series.key.phase for series in probes.open(tmp_path / "run").series] == ["eval"]


def _words(run: probes.Run) -> list[Any]:
    """A call of each word of a loop."""
    return [
        lambda: next(run.epochs(1)),
        lambda: next(run.steps([X])),
        lambda: run.epoch(0).__enter__(),
        lambda: run.step().__enter__(),
        lambda: run.phase("eval").__enter__(),
        lambda: run.log(loss=1.0),
    ]


def test_the_loop_of_a_run_that_was_not_entered_is_refused(tmp_path: Path) -> None:
    run = probes.attach(model(), SPEC, out=tmp_path / "run")
    for word in _words(run):
        with pytest.raises(UsageError, match="the run was not entered, so no hook is on the model: write `with run:`"):
            word()


PROGRAM = """
    import probes, torch
    from torch import nn
    net = nn.Sequential(nn.Linear(3, 2))
    {line}
    for _ in range(3):
        net(torch.ones(2, 3)).sum().backward()
    print("trained")
"""


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_that_is_never_entered_is_reported_at_the_end_of_the_program(kept: bool, tmp_path: Path) -> None:
    line = f"{'run = ' if kept else ''}probes.attach(net, {SPEC!r}, out='run')"
    done = programs.run("-c", dedent(PROGRAM.format(line=line)), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert 'warning: the run in "' in done.stderr
    assert "was attached and never entered, so it captured nothing: write `with probes.attach(...) as run:`" in done.stderr
    assert not (tmp_path / "run" / "claim.json").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (nn.Linear, "got the class `Linear`; make an instance of it"),
        ([model()], "got a `list`"),
        ({}, "got a `dict`"),
        ({"a": 1}, "got a `dict`"),
        (torch.optim.SGD(model().parameters(), lr=0.1), "got a `SGD`"),
        (None, "got a `NoneType`"),
    ],
)
def test_arguments_other_than_models_are_refused(wrong: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        probes.attach(wrong, SPEC, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_model_and_spec_in_the_other_order_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the model comes first"):
        probes.attach(SPEC, model(), out=tmp_path / "run")  # type: ignore[arg-type]  # the wrong order is what is tested


@pytest.mark.parametrize("name", [0, ("p",), ("p", 0), ["p", "0"], None, ("p", "0", "output", "train")])
def test_a_series_is_named_by_texts(name: Any, tmp_path: Path) -> None:
    net = model()
    with probes.attach(net, SPEC, out=tmp_path / "run") as run, run.epoch(0), run.step():
        net(X).sum().backward()
    reader = probes.open(tmp_path / "run")
    with pytest.raises(UsageError, match=r"a series is named by texts.*select a phase"):
        reader[name]
    series = reader["p", "0"]
    assert np.array_equal(np.asarray(series), series.numpy())
    assert np.asarray(series, dtype="float64").dtype == np.float64
