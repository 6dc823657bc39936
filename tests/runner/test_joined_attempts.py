"""An epoch that is continued from a checkpoint in its middle: its steps are read from the attempts that made them.

The digests are taken by a hook of the test, under the number that the test itself gives to a step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.utils.data import DataLoader

import probes
from probes.commands.ls import ls
from probes.errors import RunError, StorageError, UsageError
from probes.run_directory.listing import Directory
from probes.run_directory.recover import recover

STEPS = 10
ROWS = torch.arange(STEPS * 4.0).reshape(STEPS, 1, 4) / 7
SPEC: dict[str, Any] = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}
SPARSE: dict[str, Any] = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": {"steps": {"every": 3}}}}}
Loop = Callable[[Any, int], Iterable[Tensor]]


def by_steps(run: Any, first: int) -> Iterable[Tensor]:
    return run.steps(ROWS[first:])  # type: ignore[no-any-return]  # of a run or a module


def by_islice(run: Any, first: int) -> Iterable[Tensor]:
    return islice(DataLoader(ROWS, batch_size=None), first, None)


class StatefulLoader:
    """A loader that continues where its state says, of which nothing tells that batches are left out."""

    def __init__(self, done: int) -> None:
        self.done = done

    def __iter__(self) -> Iterator[Tensor]:
        yield from ROWS[self.done :]
        self.done = 0


def by_state(run: Any, first: int) -> Iterable[Tensor]:
    return StatefulLoader(first)


class Training:
    """A training that keeps a checkpoint of every step, and digests of what the module gave in each.

    Attributes:
        digests: by (start, epoch, step), each number counted by this class.
    """

    def __init__(self, out: Path, spec: dict[str, Any] = SPEC) -> None:
        self.out, self.spec = out, spec
        self.digests: dict[tuple[int, int, int], str] = {}
        self.checkpoints: dict[int, dict[str, Tensor]] = {}
        self.starts = 0

    def start(self, first: int = 0, fails: int | None = None, loop: Loop = by_steps, epochs: int = 2, evaluates: int = 0) -> None:
        """Train from step `first` of epoch 0 on, and fail in step `fails` of it."""
        self.starts += 1
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3))
        if first:
            model.load_state_dict(self.checkpoints[first])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        seen: list[str] = []
        model[0].register_forward_hook(lambda module, given, output: seen.append(sha256(output.detach().numpy().tobytes()).hexdigest()))
        with suppress(KeyError), probes.attach(model, self.spec, self.out, resume=True) as run:
            for epoch in run.epochs(epochs, start=0 if first else None, first_step=first):
                for step, x in enumerate(loop(run, first if not epoch else 0), first if not epoch else 0):
                    if not epoch:
                        self.checkpoints[step] = {name: value.clone() for name, value in model.state_dict().items()}
                        if step == fails:
                            raise KeyError
                    model(x).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    self.digests[self.starts, epoch, step] = seen[-1]
                    if evaluates and not epoch and step % evaluates == 0:
                        with run.phase("eval"), torch.no_grad():
                            model(x)

    def read(self, epoch: int = 0, **where: Any) -> dict[int, str]:
        """The digests of an epoch as the reader gives its captures, by step."""
        series = probes.open(self.out).sel(epoch=epoch, phase="train", **where)["p", "0"]
        return {one.clock.step: sha256(one.value.tobytes()).hexdigest() for one in series}

    def expected(self, starts: list[int], epoch: int = 0) -> dict[int, str]:
        """The digests of an epoch, given the start that each step is of."""
        return {step: self.digests[start, epoch, step] for step, start in enumerate(starts) if start}

    def verified(self) -> set[str]:
        """The codes of what `verify` finds."""
        found = probes.verify(self.out)
        assert found.ok
        return {one.code for one in found.findings}


@pytest.mark.parametrize("loop", [by_islice, by_state])
def test_the_steps_of_an_epoch_are_read_from_the_attempts_that_made_them(loop: Loop, tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    training.start(fails=7)
    training.start(first=5, loop=loop)
    assert training.read() == training.expected([1] * 5 + [2] * 5)
    assert training.read(epoch=1) == training.expected([2] * 10, epoch=1)
    assert training.read(step=slice(3, 6)) == {step: training.digests[1 if step < 5 else 2, 0, step] for step in (3, 4, 5)}
    found = probes.open(training.out)
    assert found.state == {0: "incomplete", 1: "complete"}
    assert found["p", "0"].clocks["global_step"].tolist() == list(range(20))
    assert [one.captures for one in found.outlines] == [20]
    assert found.not_shown == [
        "epoch 0: the training steps before step 5 are of attempt 1, the last of them 4; "
        "2 captures of its later steps and other phases are not shown"
    ]
    listed = CliRunner().invoke(ls, [str(training.out)]).output
    assert found.not_shown[0] in listed
    assert training.verified() == {"incomplete"}
    (reason,) = [one.message for one in probes.verify(training.out).findings if one.file == "epoch-0000.a2.h5"]
    assert reason == "the epoch is incomplete: begins in the middle: its first step is 5"


def test_a_continued_run_captures_what_an_uninterrupted_one_captures(tmp_path: Path) -> None:
    whole, continued = Training(tmp_path / "whole", SPARSE), Training(tmp_path / "continued", SPARSE)
    whole.start()
    continued.start(fails=8)
    continued.start(first=4)
    assert whole.read() == continued.read()
    assert list(whole.read()) == [0, 3, 6, 9]
    found = probes.diff(whole.out, continued.out)
    assert (found.counts["compared"], found.counts["different"], found.counts["missing"], found.counts["extra"]) == (8, 0, 0, 0)


def test_a_continued_attempt_counts_with_the_steps_that_it_continues(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    training.start(fails=8)
    training.start(first=6, fails=7)
    assert training.read() == training.expected([1] * 8)
    assert probes.open(training.out).not_shown == [
        "epoch 0: attempt 2 (incomplete, 1 capture) is not shown, since attempt 1 holds 8",
    ]
    training.start(first=7, epochs=1)
    assert training.read() == training.expected([1] * 6 + [2] + [3] * 3)
    assert [one.before for one in probes.open(training.out).attempts if one.epoch == 0] == [6, 7, None]
    assert "superseded" not in training.verified()


def test_the_steps_before_a_checkpoint_are_of_the_attempt_that_reached_it(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    training.start(fails=8)
    training.start(fails=2)  # from the beginning, and never as far as the checkpoint of the first attempt
    training.start(first=6, epochs=1)
    assert training.read() == training.expected([1] * 6 + [3] * 4)
    assert training.verified() == {"incomplete", "superseded"}
    training.start(first=3, epochs=1)  # an older checkpoint: the attempt before has no step of those before it
    assert training.read() == training.expected([1] * 3 + [4] * 7)


def test_an_epoch_that_is_complete_hides_the_attempts_before(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    training.start(fails=7, epochs=1)
    training.start(first=5, fails=8, epochs=1)
    training.start(epochs=1)
    assert training.read() == training.expected([3] * 10)
    assert probes.open(training.out).state == {0: "complete"}


def test_other_phases_are_of_the_attempt_that_continues_the_epoch(tmp_path: Path) -> None:
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": {"phases": ["train", "eval"]}}}}
    training = Training(tmp_path / "run", spec)
    training.start(fails=7, evaluates=2)
    training.start(first=5, evaluates=2, epochs=1)
    found = probes.open(training.out).sel(epoch=0)
    assert found.sel(phase="eval")["p", "0"].clocks["step"].tolist() == [0, 1]
    assert training.read() == training.expected([1] * 5 + [2] * 5)
    assert "6 captures of its later steps and other phases are not shown" in found.not_shown[0]


def test_the_last_steps_are_read_also_if_the_attempt_before_holds_more_captures_of_other_phases(tmp_path: Path) -> None:
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": {"phases": ["train", "eval"]}}}}
    training = Training(tmp_path / "run", spec)
    training.start(fails=9, evaluates=1)
    training.start(fails=5)
    training.start(first=7, epochs=1)
    assert training.read() == training.expected([1] * 7 + [3] * 3)
    assert "epoch 0: attempt 2 (incomplete, 5 captures) is not shown, since attempt 1 and attempt 3 hold 10 captures of training steps" in (
        probes.open(training.out).not_shown
    )


def test_events_are_of_the_steps_that_are_shown(tmp_path: Path) -> None:
    found = {"hook": "forward", "modules": ["0"], "when": {"trigger": {"kind": "nonfinite"}}}
    spec = {"version": 1, "probes": {**SPEC["probes"], "t": found}}
    for first, broken in ((0, (2, 7)), (5, (8,))):
        model = nn.Sequential(nn.Linear(4, 3))
        with suppress(KeyError), probes.attach(model, spec, tmp_path / "run", resume=True) as run, run.epoch(0, first_step=first):
            for step, x in enumerate(run.steps(ROWS[first:]), first):
                model(x * float("nan") if step in broken else x)
            if not first:
                raise KeyError
    assert [event["step"] for event in probes.open(tmp_path / "run").events] == [2, 8]


@pytest.mark.parametrize("name", ["epoch-0000.h5", "epoch-0000.a2.h5"])
def test_a_file_that_cannot_be_read_now_is_not_left_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(tmp_path / "run")
    training.start(fails=6)
    training.start(first=5, epochs=1)
    opened = Directory._opened

    def failing(directory: Directory, path: Path) -> Any:
        if path.name == name:
            raise StorageError("the store does not answer")
        return opened(directory, path)

    monkeypatch.setattr(Directory, "_opened", failing)
    with pytest.raises(StorageError, match="the store does not answer"):
        _ = probes.open(training.out).state


@pytest.mark.parametrize(("name", "expected"), [("epoch-0000.h5", ["epoch-0000.h5"]), ("epoch-0000.a2.h5", ["epoch-0000.h5"])])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:9000])])
def test_an_attempt_with_a_lost_file_is_not_joined(
    name: str, expected: list[str], damage: Callable[[Path], object], tmp_path: Path
) -> None:
    training = Training(tmp_path / "run")
    training.start(fails=6)
    training.start(first=5, epochs=1)
    damage(training.out / name)
    assert [file for one in probes.open(training.out).attempts if one.current for file in one.files] == expected
    assert not probes.verify(training.out).ok


def test_segments_of_both_attempts_are_joined(tmp_path: Path) -> None:
    training = Training(tmp_path / "run", {**SPEC, "sinks": {"captures": {"kind": "hdf5", "seal": {"steps": 2}}}})
    training.start(fails=7)
    training.start(first=5, epochs=1)
    assert training.read() == training.expected([1] * 5 + [2] * 5)
    assert "superseded" not in training.verified()


def test_a_killed_attempt_is_joined_before_and_after_its_journal_is_sealed(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    child = os.fork()
    if not child:
        training.start(fails=7, loop=_killed)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 9
    twin = Training(tmp_path / "twin")
    twin.start(fails=7)
    training.checkpoints, training.digests, training.starts = twin.checkpoints, twin.digests, 1
    assert set(training.read()) == {0, 1, 2, 3, 4, 5, 6}
    training.start(first=5, epochs=1)
    assert training.read() == training.expected([1] * 5 + [2] * 5)
    recover(training.out)
    assert training.read() == training.expected([1] * 5 + [2] * 5)


def _killed(run: Any, first: int) -> Iterator[Tensor]:
    for index, x in enumerate(run.steps(ROWS)):
        if index == 7:
            os.kill(os.getpid(), 9)
        yield x


def test_sample_ids_are_of_the_steps_that_are_shown(tmp_path: Path) -> None:
    def by_ids(run: Any, first: int) -> Iterable[Tensor]:
        return run.steps(ROWS[first:], ids=lambda x: [f"{run.directory.name}-{len(list(run.directory.glob('run*.json')))}"])  # type: ignore[no-any-return]  # of a run or a module

    training = Training(tmp_path / "run")
    training.start(fails=8, loop=by_ids)
    training.start(first=6, fails=9, loop=by_ids)
    series = probes.open(training.out).sel(epoch=0)["p", "0"]
    assert series.step_ids(0) == {step: ["run-1" if step < 6 else "run-2"] for step in range(9)}
    assert probes.open(training.out)._directory.ids("epoch-0000.h5", "train").steps.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("when", [{"steps": {"first": 3}}, {"epochs": {"at": [1]}}])
def test_a_probe_may_be_due_only_in_steps_before_the_checkpoint(when: dict[str, Any], tmp_path: Path) -> None:
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": when}}}
    model = nn.Sequential(nn.Linear(4, 3))
    with suppress(KeyError), probes.attach(model, spec, tmp_path / "run") as run:
        for _ in run.epochs(2):
            for x in run.steps(ROWS[:7]):
                model(x)
        raise KeyError
    with probes.attach(model, spec, tmp_path / "run", resume=True) as run, run.epoch(2, first_step=5):
        for x in run.steps(ROWS[5:]):
            model(x)


def test_a_probe_that_was_never_due_is_an_error_in_a_continued_run_too(tmp_path: Path) -> None:
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": {"epochs": {"at": [7]}}}}}
    model = nn.Sequential(nn.Linear(4, 3))
    run = probes.attach(model, spec, tmp_path / "run")
    run.start()
    with run.epoch(0, first_step=5):
        for x in run.steps(ROWS[5:]):
            model(x)
    with pytest.raises(RunError, match="its schedule selects no step of the run"):
        run.close()


class Unreached(nn.Module):
    """A model with a module that it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)  # type: ignore[no-any-return]  # of a run or a module


def test_a_probe_that_captured_nothing_where_it_was_due_is_an_error_in_a_continued_run_too(tmp_path: Path) -> None:
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["*used"], "when": {"epochs": {"at": [0]}}}}}
    spec["probes"]["q"] = {"hook": "forward", "modules": ["unused"], "when": {"epochs": {"at": [0]}}}  # type: ignore[index]  # nested mappings
    model = Unreached()
    with suppress(KeyError), probes.attach(model, spec, tmp_path / "run") as run:
        with run.epoch(0):
            for x in run.steps(ROWS):
                model(x)
        raise KeyError
    run = probes.attach(model, spec, tmp_path / "run", resume=True)
    run.start()
    with run.epoch(1):
        for x in run.steps(ROWS):
            model(x)
    with pytest.raises(RunError, match="probe `q` captured nothing: its schedule selects no step of the run") as found:
        run.close()
    assert "probe `p`" not in str(found.value)


@pytest.mark.parametrize("more", [{}, {"edit": {"kind": "scale", "by": 2.0}}])
def test_a_first_step_in_a_new_directory_does_not_mean_that_there_are_captures_before(more: dict[str, Any], tmp_path: Path) -> None:
    probe = {"hook": "forward", "modules": ["0"], "when": {"steps": {"first": 3}}, **more}
    model = nn.Sequential(nn.Linear(4, 3))
    run = probes.attach(model, {"version": 1, "allow_edits": True, "probes": {"p": probe}}, tmp_path / "run")
    run.start()
    with run.epoch(0, first_step=5):
        for x in run.steps(ROWS[5:]):
            model(x)
    with pytest.raises(RunError, match=r"probe `p` (captured|edited) nothing: its schedule selects no step of the run"):
        run.close()


def test_a_first_step_needs_the_epoch_that_it_is_in(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="`first_step=5` is a step of one epoch: give `start` too, the epoch of the checkpoint"),
        probes.attach(nn.Sequential(nn.Linear(4, 3)), SPEC, tmp_path / "run") as run,
    ):
        list(run.epochs(2, first_step=5))


def test_an_epoch_that_a_call_has_opened_takes_no_first_step(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    with probes.attach(model, SPEC, tmp_path / "run") as run:
        model(ROWS[0])
        with pytest.raises(UsageError, match="a call of the model has opened epoch 0 already, so that it cannot begin with step 5"):
            run.epoch(0, first_step=5).__enter__()
