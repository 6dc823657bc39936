"""How a loop over `run.steps` or `run.epochs` is left: by a normal end, or by an exception."""

from __future__ import annotations

import contextlib
import io
import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import Linear, Module
from tqdm import tqdm

import probes

SPEC = {"version": 1, "probes": {"values": {"modules": ["fc"], "values": ["output"]}}}
COUNT = 5


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(x)
        return out


class Iterating:
    """An iterator in Python around another one."""

    def __init__(self, inner: Iterable[Any]) -> None:
        self.inner = iter(inner)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.inner)


def passed_on(inner: Iterable[Any]) -> Iterator[Any]:
    for one in inner:  # noqa: UP028  # a loop in a generator's frame
        yield one


def delegated(inner: Iterable[Any]) -> Iterator[Any]:
    yield from inner


def same(one: Any) -> Any:
    return one


FORMS: dict[str, Callable[[Iterable[Any]], Iterable[Any]]] = {
    "direct": lambda steps: steps,
    "zip after": lambda steps: (pair[0] for pair in zip(steps, range(100), strict=False)),
    "enumerate": lambda steps: (pair[1] for pair in enumerate(steps)),
    "tqdm": lambda steps: tqdm(steps, disable=True),
    "tqdm, shown": lambda steps: tqdm(steps, file=io.StringIO()),
    "iterator": Iterating,
    "generator": passed_on,
    "yield from": delegated,
    "expression": lambda steps: (one for one in steps),
    "map": lambda steps: map(same, steps),
}
SHORT: dict[str, Callable[[Iterable[Any], int], Iterable[Any]]] = {
    "islice": lambda steps, count: itertools.islice(steps, count),
    "zip before": lambda steps, count: (pair[1] for pair in zip(range(count), steps, strict=False)),
    "zip before, direct": lambda steps, count: map(lambda _, one: one, range(count), steps),
    "islice of an expression": lambda steps, count: itertools.islice((one for one in steps), count),
    "islice of tqdm": lambda steps, count: itertools.islice(tqdm(steps, disable=True), count),
    "tqdm of islice": lambda steps, count: tqdm(itertools.islice(steps, count), disable=True),
}


def stored(folder: Path, loop: Callable[[probes.Run, Module], None]) -> list[int]:
    """The steps that a loop over a run leaves in its files."""
    model = Net()
    with probes.attach(model, SPEC, folder) as run, run.epoch(0), contextlib.suppress(ValueError, IndexError, KeyboardInterrupt):
        loop(run, model)
    return list(probes.open(folder)["values", "fc"].steps)


def batches() -> list[torch.Tensor]:
    return [torch.randn(2, 4) for _ in range(COUNT)]


@pytest.mark.parametrize("form", FORMS)
def test_a_loop_that_is_left_by_break_keeps_its_last_step(form: str, tmp_path: Path) -> None:
    def loop(run: probes.Run, model: Module) -> None:
        for index, x in enumerate(FORMS[form](run.steps(batches()))):
            model(x)
            if index == 2:
                break

    assert stored(tmp_path / "run", loop) == [0, 1, 2]


@pytest.mark.parametrize("form", FORMS)
def test_a_loop_that_is_left_by_return_keeps_its_last_step(form: str, tmp_path: Path) -> None:
    def loop(run: probes.Run, model: Module) -> None:
        for index, x in enumerate(FORMS[form](run.steps(batches()))):
            model(x)
            if index == 2:
                return

    assert stored(tmp_path / "run", loop) == [0, 1, 2]


@pytest.mark.parametrize("form", SHORT)
def test_an_iterator_that_ends_early_keeps_the_last_step(form: str, tmp_path: Path) -> None:
    def loop(run: probes.Run, model: Module) -> None:
        for x in SHORT[form](run.steps(batches()), 3):
            model(x)

    assert stored(tmp_path / "run", loop) == [0, 1, 2]


def test_steps_in_a_variable_keep_the_last_one_by_break_return_and_next(tmp_path: Path) -> None:
    def by_break(run: probes.Run, model: Module) -> None:
        steps = run.steps(batches())
        for index, x in enumerate(steps):
            model(x)
            if index == 2:
                break

    def by_return(run: probes.Run, model: Module) -> None:
        steps = run.steps(batches())
        for index, x in enumerate(steps):
            model(x)
            if index == 2:
                return

    def by_next(run: probes.Run, model: Module) -> None:
        steps = run.steps(batches())
        for _ in range(3):
            model(next(steps))

    def by_close(run: probes.Run, model: Module) -> None:
        with contextlib.closing(run.steps(batches())) as steps:  # type: ignore[type-var]  # a generator
            for _ in range(3):
                model(next(steps))

    def replaced(run: probes.Run, model: Module) -> None:
        steps: Any = run.steps(batches())
        for _ in range(3):
            model(next(steps))
        steps = None

    for number, loop in enumerate((by_break, by_return, by_next, by_close, replaced)):
        assert stored(tmp_path / str(number), loop) == [0, 1, 2], loop.__name__


def statement() -> None:
    raise ValueError


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("error", [statement, interrupt], ids=["raise", "interrupt"])
@pytest.mark.parametrize("form", [*FORMS, *SHORT])
def test_an_exception_in_a_call_of_the_body_drops_the_step(form: str, error: Callable[[], None], tmp_path: Path) -> None:
    count = itertools.count()

    def loop(run: probes.Run, model: Module) -> None:
        for x in FORMS[form](run.steps(batches())) if form in FORMS else SHORT[form](run.steps(batches()), 4):
            model(x)
            if next(count) == 2:
                error()

    assert stored(tmp_path / "run", loop) == [0, 1]


@pytest.mark.parametrize(
    "error", ["raise", "with", "try", "reraise", "finally", "subscript", "function", "stored error", "closing", "generator function"]
)
def test_every_way_to_raise_in_the_body_drops_the_step(error: str, tmp_path: Path) -> None:
    kept = ValueError("raised before")

    def body(run: probes.Run, model: Module) -> Iterator[None]:
        empty: list[int] = []
        for index, x in enumerate(itertools.islice(run.steps(batches()), 4)):
            model(x)
            if index < 2:
                yield
                continue
            if error == "raise":
                raise ValueError
            elif error == "with":
                with torch.no_grad():
                    int("x")
            elif error == "try":
                try:
                    int("x")
                except TypeError:
                    return
            elif error == "reraise":
                try:
                    int("x")
                except ValueError:
                    raise
            elif error == "finally":
                try:
                    int("x")
                finally:
                    empty.append(1)
            elif error == "subscript":
                empty[3] = 1
            elif error == "stored error":
                raise kept
            else:
                int("x")

    def loop(run: probes.Run, model: Module) -> None:
        if error == "generator function":
            for _ in itertools.islice(body(run, model), 5):
                pass
        elif error == "closing":
            with contextlib.closing(run.steps(batches())) as steps:  # type: ignore[type-var]  # a generator
                for _ in range(3):
                    model(next(steps))
                statement()
        else:
            list(body(run, model))

    assert stored(tmp_path / "run", loop) == [0, 1]


def test_a_caught_exception_keeps_the_step_if_a_variable_holds_the_iterator(tmp_path: Path) -> None:
    """As docs/steps.md says: nothing tells it from a normal end when the variable is gone."""

    def loop(run: probes.Run, model: Module) -> None:
        steps = run.steps(batches())
        with contextlib.suppress(ValueError):
            for index, x in enumerate(steps):
                model(x)
                if index == 2:
                    statement()

    assert stored(tmp_path / "run", loop) == [0, 1, 2]


def test_an_error_kept_from_an_earlier_loop_does_not_drop_a_step_of_a_later_one(tmp_path: Path) -> None:
    kept = []

    def loop(run: probes.Run, model: Module) -> None:
        for fails in (True, False):
            try:
                for index, x in enumerate(itertools.islice(run.steps(batches()), 3)):
                    model(x)
                    if fails and index == 2:
                        statement()
            except ValueError as error:
                kept.append(error)

    assert stored(tmp_path / "run", loop) == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("short", ["islice", "zip", "variable", "break"])
def test_epochs_that_end_early_leave_the_last_one_complete(short: str, tmp_path: Path) -> None:
    model = Net()
    with probes.attach(model, SPEC, tmp_path / "run") as run:
        epochs: Any = run.epochs(10)
        if short == "islice":
            epochs = itertools.islice(epochs, 2)
        elif short == "zip":
            epochs = map(lambda _, epoch: epoch, range(2), run.epochs(2))
        for epoch in epochs:
            for x in run.steps(batches()):
                model(x)
            if epoch == 1 and short in ("variable", "break"):
                break
        del epochs
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: "complete"}


def test_an_exception_in_epochs_makes_the_last_one_incomplete(tmp_path: Path) -> None:
    model = Net()
    with probes.attach(model, SPEC, tmp_path / "run") as run, contextlib.suppress(ValueError):
        for epoch in itertools.islice(run.epochs(10), 3):
            for x in run.steps(batches()):
                model(x)
            if epoch == 1:
                statement()
    assert probes.open(tmp_path / "run").state == {0: "complete", 1: "incomplete"}


LEFT_TO_THE_INTERPRETER = """
import sys, torch, probes
model = torch.nn.Linear(4, 3)
with probes.attach(model, {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}}, out=sys.argv[1]) as run:
    epochs = run.epochs(2)
    next(epochs)
    batches = run.steps([torch.ones(1, 4)] * 3)
    for _ in range(2):
        model(next(batches))
"""


def test_loops_that_are_closed_after_the_program_has_ended_print_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LEFT_TO_THE_INTERPRETER, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "Exception ignored" not in done.stderr
    assert len(probes.open(tmp_path / "run")["p", ""].torch()) == 2
