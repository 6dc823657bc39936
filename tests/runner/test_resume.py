"""Going on with a run that was begun before."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.utils.data import BatchSampler, DataLoader

import probes
from probes.commands.ls import ls
from probes.commands.show import show
from probes.errors import RunError, StorageError, UsageError
from probes.proof.in_toto import statement
from probes.run_directory.file_name import manifest_name
from probes.run_directory.manifest import written
from probes.run_directory.resume import PreviousAttempts, read_attempts
from probes.spec.load import load_spec
from tests.warm import programs

SPEC = {"version": 1, "name": "r", "probes": {"p": {"modules": ["0"], "values": ["output", "grad_output"]}}}
TRAINING = """
import os, signal, sys
import torch
from torch import nn
import probes

out, spec, last, step = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
with probes.attach(model, spec, out=out) as run:
    for epoch in run.epochs(3):
        for index, x in enumerate(run.steps([torch.full((3, 4), float(i)) for i in range(6)])):
            model(x).sum().backward()
            if (epoch, index) == (last, step):
                run.recording.drain()  # the epochs before are sealed, however slow the machine is
                os.kill(os.getpid(), signal.SIGKILL)
"""


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def train(run: Any, model: nn.Module, epochs: int = 3, **start: int) -> list[int]:
    seen = []
    with run:
        for epoch in run.epochs(epochs, **start):
            seen.append(epoch)
            for x in run.steps([torch.full((3, 4), float(i)) for i in range(6)]):
                model(x).sum().backward()
    return seen


def killed(out: Path, epoch: int, step: int, spec: dict[str, Any] = SPEC) -> None:
    done = programs.run("-c", TRAINING, out, repr(spec), str(epoch), str(step))
    assert done.returncode == -signal.SIGKILL


def resumed(out: Path, **more: Any) -> Any:
    return probes.attach(net(), SPEC, out=out, resume=True, take_over=True, **more)


def test_a_killed_run_continues_with_its_unfinished_epoch(tmp_path: Path) -> None:
    out = tmp_path / "r"
    killed(out, 1, 3)
    model = net()
    run = probes.attach(model, SPEC, out=out, resume=True, take_over=True)
    assert (run.past.attempt, run.next_epoch, run.past.sealed) == (2, 1, ("epoch-0001.h5",))
    assert train(run, model) == [1, 2]
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".diff") == sorted(
        ["epoch-0000.h5", "epoch-0001.a2.h5", "epoch-0001.h5", "epoch-0002.a2.h5", "ledger.jsonl", "run.a2.json", "run.json", "spec.yaml"]
    )
    assert probes.verify(out).ok
    found = probes.open(out)
    assert found.state == {0: "complete", 1: "complete", 2: "complete"}
    assert [(one.epoch, one.attempt, one.state, one.current) for one in found.attempts] == [
        (0, 1, "complete", True),
        (1, 1, "incomplete", False),
        (1, 2, "complete", True),
        (2, 2, "complete", True),
    ]
    steps = found["p", "0", "output"].clocks["global_step"].tolist()
    assert steps == list(range(18))


def test_a_resumed_run_has_the_same_captures_as_a_run_that_was_never_killed(tmp_path: Path) -> None:
    whole, model = tmp_path / "whole", net()
    train(probes.attach(model, SPEC, out=whole), model)
    out = tmp_path / "r"
    killed(out, 1, 3)
    model = net()
    train(probes.attach(model, SPEC, out=out, resume=True, take_over=True), model)
    assert probes.diff(whole, out).same


def test_the_loop_may_go_back_to_an_earlier_epoch_and_an_incomplete_attempt_does_not_count(tmp_path: Path) -> None:
    out, model = tmp_path / "r", net()
    train(probes.attach(model, SPEC, out=out), model, 2)
    run = probes.attach(model, SPEC, out=out, resume=True)
    assert run.next_epoch == 2
    with pytest.raises(RunError, match="probe `p` captured nothing"), run:
        _fail(run, model)
    found = probes.open(out)
    assert found.state == {0: "complete", 1: "complete"}
    assert [one.files for one in found.attempts if one.current] == [("epoch-0000.h5",), ("epoch-0001.h5",)]
    verdict = probes.verify(out)
    assert verdict.ok
    assert "superseded" in {finding.code for finding in verdict.findings}


def _fail(run: Any, model: nn.Module) -> None:
    with suppress(KeyError), run.epoch(1):
        model(torch.ones(3, 4)).sum().backward()
        raise KeyError


def test_a_run_begins_in_a_directory_without_a_run(tmp_path: Path) -> None:
    model = net()
    run = probes.attach(model, SPEC, out=tmp_path / "r", resume=True)
    assert (run.past, run.next_epoch) == (PreviousAttempts(), 0)
    assert train(run, model, 1) == [0]


def test_a_run_is_never_continued_without_resume(tmp_path: Path) -> None:
    model = net()
    train(probes.attach(model, SPEC, out=tmp_path / "r"), model, 1)
    with pytest.raises(StorageError, match=r"not empty .* files are never overwritten: choose another .* `--resume`"):
        probes.attach(model, SPEC, out=tmp_path / "r")


def test_a_killed_run_is_continued_with_resume(tmp_path: Path) -> None:
    killed(tmp_path / "r", 0, 1)
    with pytest.raises(StorageError, match="which is dead: continue it with `--resume`"):
        probes.attach(net(), SPEC, out=tmp_path / "r")
    model = net()
    assert train(probes.attach(model, SPEC, out=tmp_path / "r", resume=True), model, 1) == [0]


def test_a_live_run_is_not_resumed(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, SPEC, out=tmp_path / "r") as run, run.epoch(0):
        model(torch.ones(3, 4)).sum().backward()
        with pytest.raises(StorageError, match=f"in use by pid {os.getpid()}"):
            resumed(run.directory)


@pytest.mark.parametrize("what", ["spec", "model"])
def test_another_spec_or_model_is_another_run(tmp_path: Path, what: str) -> None:
    model = net()
    train(probes.attach(model, SPEC, out=tmp_path / "r"), model, 1)
    other = {**SPEC, "probes": {"p": {"modules": ["2"], "hook": "forward"}}} if what == "spec" else SPEC
    model = nn.Sequential(nn.Linear(4, 5)) if what == "model" else model
    with pytest.raises(UsageError, match=f"was begun with another {what}") as refused:
        probes.attach(model, other, out=tmp_path / "r", resume=True)
    assert (f'see "{tmp_path / "r" / "spec.yaml"}"' in str(refused.value)) == (what == "spec")
    assert not (tmp_path / "r" / "claim.json").exists()


@pytest.mark.parametrize("second", ["job-2.yaml", "mapping"])
def test_the_file_of_a_spec_may_have_another_name_when_the_run_is_resumed(tmp_path: Path, second: str) -> None:
    model, unnamed = net(), {key: value for key, value in SPEC.items() if key != "name"}
    for name in ("job-1.yaml", "job-2.yaml"):
        (tmp_path / name).write_text(json.dumps(unnamed))
    train(probes.attach(model, tmp_path / "job-1.yaml", out=tmp_path / "r"), model, 1)
    spec = unnamed if second == "mapping" else tmp_path / second
    train(probes.attach(model, spec, out=tmp_path / "r", resume=True), model, 2)
    assert probes.verify(tmp_path / "r").ok
    assert probes.open(tmp_path / "r").epochs == [0, 1]
    assert {json.loads((tmp_path / "r" / name).read_text())["spec"]["name"] for name in ("run.json", "run.a2.json")} == {"job-1"}


def test_another_name_that_the_spec_states_is_another_spec(tmp_path: Path) -> None:
    model = net()
    train(probes.attach(model, {**SPEC, "name": "one"}, out=tmp_path / "r"), model, 1)
    with pytest.raises(UsageError, match="was begun with another spec"):
        probes.attach(model, {**SPEC, "name": "two"}, out=tmp_path / "r", resume=True)


def test_resuming_needs_a_directory_and_taking_over_needs_resuming(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the directory of the run"):
        probes.attach(net(), SPEC, resume=True)
    with pytest.raises(UsageError, match="taking over is for resuming"):
        probes.attach(net(), SPEC, out=tmp_path / "r", take_over=True)


def test_a_damaged_run_is_not_continued(tmp_path: Path) -> None:
    model = net()
    train(probes.attach(model, SPEC, out=tmp_path / "r"), model, 2)
    (tmp_path / "r" / "epoch-0000.h5").unlink()
    with pytest.raises(StorageError, match=r"cannot resume the run .*: epoch-0000.h5: it is in the ledger, but not in the directory"):
        probes.attach(model, SPEC, out=tmp_path / "r", resume=True)


def test_an_unreadable_manifest_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(StorageError, match=r"run.json' cannot be read, so the run cannot be resumed"):
        resumed(tmp_path)


def test_third_starts_have_a_third_manifest(tmp_path: Path) -> None:
    model = net()
    train(probes.attach(model, SPEC, out=tmp_path / "r"), model, 1)
    for epochs in (2, 3):
        train(probes.attach(model, SPEC, out=tmp_path / "r", resume=True), model, epochs)
    assert [manifest_name(number) for number in (1, 2, 3)] == ["run.json", "run.a2.json", "run.a3.json"]
    assert json.loads((tmp_path / "r" / "run.a3.json").read_text())["run_id"] == probes.open(tmp_path / "r").manifest["run_id"]
    subjects = statement(probes.verify(tmp_path / "r", sha256=True))["subject"]
    assert {"run.json", "run.a2.json", "run.a3.json", "spec.yaml", "ledger.jsonl"} <= {subject["name"] for subject in subjects}
    assert read_attempts(tmp_path / "r") == PreviousAttempts(4, 3, {0: {"train": 6}, 1: {"train": 6}, 2: {"train": 6}}, ("p",))


def test_a_run_that_was_attached_and_never_entered_frees_its_directory(tmp_path: Path) -> None:
    first = probes.attach(net(), SPEC, out=tmp_path / "r")
    model = net()
    assert train(probes.attach(model, SPEC, out=tmp_path / "r"), model, 1) == [0]
    with pytest.raises(UsageError, match="was entered before: attach again"):
        first.start()


def test_a_run_that_has_ended_is_not_entered_again(tmp_path: Path) -> None:
    model = net()
    run = probes.attach(model, SPEC, out=tmp_path / "r")
    train(run, model, 1)
    with pytest.raises(UsageError, match="was entered before"), run:
        pass


def _enter(run: Any) -> None:
    run.__enter__()


def test_a_run_that_a_failed_cell_of_a_notebook_has_left_open_is_taken_over(tmp_path: Path) -> None:
    model = net()
    run = probes.attach(model, SPEC, out=tmp_path / "r")
    _enter(run)
    epochs = run.epochs(3)
    next(epochs)
    for x in run.steps([torch.ones(3, 4)] * 2):
        model(x).sum().backward()
    with pytest.raises(StorageError, match=r"which is this process: end it with `run[.]close"):
        probes.attach(net(), SPEC, out=tmp_path / "r", resume=True)
    other = net()
    again = probes.attach(other, SPEC, out=tmp_path / "r", resume=True, take_over=True)
    assert train(again, other, 1) == [0]
    assert probes.verify(tmp_path / "r").ok
    assert not model._forward_hooks


def test_an_open_run_whose_code_still_executes_is_not_taken_over_but_closed_first(tmp_path: Path) -> None:
    model = net()
    run = probes.attach(model, SPEC, out=tmp_path / "r")
    run.__enter__()
    model(torch.ones(3, 4)).sum().backward()
    with pytest.raises(StorageError, match=r"the code that entered the run still executes: call its `run.close\(\)`"):
        probes.attach(model, SPEC, out=tmp_path / "r", resume=True, take_over=True)
    run.close()
    train(probes.attach(model, SPEC, out=tmp_path / "r", resume=True, take_over=True), model, 1)


def test_a_run_that_has_ended_may_be_started_again(tmp_path: Path) -> None:
    for _ in range(2):
        model = net()
        train(probes.attach(model, SPEC, out=tmp_path / "r", resume=True), model, 1)
    assert probes.verify(tmp_path / "r").ok


def test_a_run_that_an_earlier_release_began_keeps_the_form_of_its_identity(tmp_path: Path) -> None:
    """Release 0.1 wrote `1.0` where RFC 8785 writes `1`; a resumed run has one identity of its spec."""
    probe = {"modules": ["fc"], "values": ["output"], "transforms": [{"kind": "quantile", "q": [0.5, 1.0]}]}
    loaded = load_spec({"version": 1, "probes": {"acts": probe}})
    old, new = loaded.identity_of("proof.v1"), loaded.identity_hash
    assert old != new
    model = nn.Sequential()
    model.add_module("fc", nn.Linear(2, 2))
    with probes.attach(model, loaded, out=tmp_path / "run") as run, run.epoch(0), run.step():
        model(torch.zeros(1, 2))
    path = tmp_path / "run" / "run.json"
    manifest = json.loads(path.read_text("utf-8"))
    del manifest["proof"]
    path.write_text(written(manifest).replace(new, old), "utf-8")
    with probes.attach(model, loaded, out=tmp_path / "run", resume=True) as run, run.epoch(1), run.step():
        model(torch.zeros(1, 2))
    second = json.loads((tmp_path / "run" / "run.a2.json").read_text("utf-8"))
    assert (second["proof"], second["identity"]["spec"]) == ("proof.v1", old)


def _stepped(run: Any, model: nn.Module, batches: Iterable[torch.Tensor]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches:
        model(x).sum().backward()
        optimizer.step()


ROWS: Any = torch.arange(24.0).reshape(6, 4)
PARTS = list(ROWS.reshape(6, 1, 4))


def _skips_in_the_loop(run: Any) -> Iterator[torch.Tensor]:
    for index, x in enumerate(DataLoader(ROWS, batch_size=1)):
        if index >= 2:
            yield x


def _skips_by_islice(run: Any) -> Iterator[torch.Tensor]:
    yield from islice(DataLoader(ROWS, batch_size=1), 2, None)


def _all_but_the_last(run: Any) -> Iterator[torch.Tensor]:
    yield from islice(DataLoader(ROWS, batch_size=1), 5, None)


def _skips_steps_of_a_list(run: Any) -> Iterator[torch.Tensor]:
    yield from islice(run.steps(PARTS), 2, None)


def _fetches_ahead(run: Any) -> Iterator[torch.Tensor]:
    waiting: list[torch.Tensor] = []
    for x in DataLoader(ROWS, batch_size=1):
        waiting.append(x)
        if len(waiting) > 2:
            yield waiting.pop(0)
    yield from waiting


def _joins_batches(run: Any) -> Iterator[torch.Tensor]:
    pulled = iter(DataLoader(ROWS, batch_size=1))
    for first in pulled:
        yield torch.cat([first, *islice(pulled, 1)])


def _sampler_states_what_it_skips(run: Any) -> Iterator[torch.Tensor]:
    class Skips(BatchSampler):
        skip_batches = 0

        def __iter__(self) -> Iterator[list[int]]:
            yield from islice(super().__iter__(), self.skip_batches, None)

    sampler = Skips(range(6), 1, drop_last=False)
    sampler.skip_batches = 2
    yield from DataLoader(ROWS, batch_sampler=sampler)


@pytest.mark.parametrize(
    ("loop", "skipped"),
    [
        (_skips_in_the_loop, "2 batches"),
        (_skips_by_islice, "2 batches"),
        (_all_but_the_last, "5 batches"),
        (_skips_steps_of_a_list, "2 batches"),
        (_sampler_states_what_it_skips, "2 batches"),
        (_fetches_ahead, ""),
        (_joins_batches, ""),
    ],
)
def test_an_epoch_that_is_continued_in_the_middle_is_not_complete(loop: Any, skipped: str, tmp_path: Path) -> None:
    out, model = tmp_path / "r", net()
    with suppress(KeyError), probes.attach(model, SPEC, out=out) as run, run.epoch(0):
        _stepped(run, model, PARTS[:2])
        raise KeyError
    model = net()
    with probes.attach(model, SPEC, out=out, resume=True) as run:
        for _ in run.epochs(2):
            _stepped(run, model, loop(run))
    found = probes.open(out)
    assert found.state == {0: "incomplete" if skipped else "complete", 1: "incomplete" if "sampler" in loop.__name__ else "complete"}
    reasons = [one.message for one in probes.verify(out).findings if one.code == "incomplete" and one.file == "epoch-0000.a2.h5"]
    assert reasons == ([f"the epoch is incomplete: begins in the middle: {skipped} skipped"] if skipped else [])
    assert any("is not shown" in line for line in found.not_shown)
    assert read_attempts(out).next_epoch == (2 if found.state[1] == "complete" else 0)


def test_a_complete_attempt_says_which_earlier_one_it_hides(tmp_path: Path) -> None:
    out, model = tmp_path / "r", net()
    with suppress(KeyError), probes.attach(model, SPEC, out=out) as run, run.epoch(1):
        _stepped(run, model, PARTS[:2])
        raise KeyError
    run = probes.attach(model, SPEC, out=out, resume=True)
    train(run, model, 3, start=1)
    found = probes.open(out)
    assert found.not_shown == ["epoch 1: attempt 1 (incomplete, 2 captures) is not shown, since attempt 2 is complete"]
    assert found.not_shown[0] in repr(found)
    assert found.sel(epoch=2).not_shown == []
    for verb, words in ((ls, []), (show, ["p/0:output"]), (show, ["p/**"])):
        assert found.not_shown[0] in CliRunner().invoke(verb, [str(out), *words]).output
