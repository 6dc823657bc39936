"""Programs that change watched objects, and the end of a run: each object stays as the program made it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import Module
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations
from torch.utils.data import DataLoader, TensorDataset

import probes
from probes.component import Transform
from probes.errors import StorageError
from probes.journal.writer import Journal
from probes.transforms.norm import Norm

ACTS: dict[str, Any] = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": {"phases": ["train", "eval"]}}}}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))


def clocks(out: Path, phase: str = "train", **select: Any) -> list[tuple[int, int]]:
    return [(one.clock.epoch, one.clock.step) for one in probes.open(out).sel(phase=phase)["p", "0"]]


def test_a_bound_call_that_the_program_keeps_counts_as_any_other_and_leaves_no_hook(tmp_path: Path) -> None:
    model = net()
    before = Module.__call__
    with probes.attach(model, ACTS, out=tmp_path / "r") as run:
        call = model.__call__
        for x in run.steps([torch.ones(2, 3)] * 4):
            call(x)
    assert clocks(tmp_path / "r") == [(0, step) for step in range(4)]
    assert Module.__call__ is before
    assert call(torch.ones(2, 3)).shape == (2, 1)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_part_without_parameters_that_is_called_by_itself_belongs_to_the_call_before_it(tmp_path: Path) -> None:
    model, hand = net(), list[Tensor]()
    probe = {"modules": ["*"], "values": ["output", "grad_output"]}
    spec = {"version": 1, "defaults": {"when": {"phases": ["train", "val"]}}, "probes": {"p": probe}}
    optimizer = torch.optim.SGD(model.parameters())
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        for x in run.steps(torch.randn(3, 2, 3)):
            for _ in range(2):
                hidden = model[1](model[1](model[0](x)))
                hand.append(hidden.detach().clone())
                model[2](hidden).sum().backward()
            optimizer.step()
        with run.phase("val"), run.step(), torch.no_grad():
            model[1](model[0](x))
    saved = probes.open(tmp_path / "r").sel(phase="train")
    relu = saved["p", "1", "output"]
    places = [(one.clock.step, one.clock.microstep, one.clock.call) for one in relu]
    assert places == [(step, microstep, call) for step in range(3) for microstep in (0, 2) for call in (0, 1)]
    assert all(torch.equal(one, torch.from_numpy(two.value)) for one, two in zip(hand, list(relu)[1::2], strict=True))
    assert [one.clock.microstep for one in saved["p", "2", "output"]] == [1, 3] * 3  # the call of the activation is not counted
    assert len(saved["p", "1", "grad_output"]) == 12
    assert len(probes.open(tmp_path / "r").sel(phase="val")["p", "1"]) == 1


def test_a_part_without_parameters_that_belongs_to_no_step_is_named_at_the_end(tmp_path: Path) -> None:
    model = net()
    spec = {"version": 1, "probes": {"p": {"modules": ["*"], "values": ["output"]}}}
    optimizer = torch.optim.SGD(model.parameters())
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        for x in torch.randn(3, 2, 3):
            model[2](model[0](model[1](x))).sum().backward()  # of the second step on, the activation is called after the optimizer step
            optimizer.step()
        model.eval()
        model[1](x)
    assert [series.key.target for series in probes.open(tmp_path / "r").series] == ["0", "2"]
    assert "4 calls of `1` are not captured: a part without parameters" in str(run.summary())


def test_an_optimizer_step_after_transformed_calls_is_not_blamed_on_the_mode(tmp_path: Path) -> None:
    model = net()
    spec = {"version": 1, "probes": {"p": {"modules": ["0"], "hook": "forward", "when": {"phases": ["eval"]}}}}
    optimizer = torch.optim.SGD(model.parameters())
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        for _ in range(2):
            with torch.no_grad():
                model(torch.ones(2, 3))
            torch.func.vmap(model)(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    (warning,) = run.summary().as_dict()["warnings"]
    assert warning.startswith("2 optimizer steps followed calls of phase `eval`, and calls within transforms of `torch.func`")
    assert "model.train()" not in warning


def test_reading_a_parametrized_weight_does_not_call_the_model(tmp_path: Path) -> None:
    model = net()
    spec = {"version": 1, "probes": {"p": {"modules": ["0", "0.parametrizations.weight.0"], "values": ["output", "grad_output"]}}}
    optimizer = torch.optim.SGD(model.parameters())
    weight_norm(model[0])
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        for x in DataLoader(TensorDataset(torch.ones(4, 3)), batch_size=2):
            assert model[0].weight.norm() > 0  # before the call of the model
            model(*x).sum().backward()
            optimizer.step()
            with torch.no_grad():
                assert model[0].weight.norm() > 0
        remove_parametrizations(model[0], "weight")
        assert run.summary().steps == {"train": 2}
    for target in ("0", "0.parametrizations.weight.0"):
        assert [(one.clock.step, one.clock.microstep) for one in probes.open(tmp_path / "r")["p", target, "output"]] == [(0, 0), (1, 0)]


def test_two_runs_at_once_get_only_their_own_calls_and_may_end_in_any_order(tmp_path: Path) -> None:
    first, second = net(), net()
    one, two = probes.attach(first, ACTS, out=tmp_path / "one"), probes.attach(second, ACTS, out=tmp_path / "two")
    before = Module.__call__
    one.start()
    two.start()
    for _ in range(2):
        first(torch.ones(2, 3))
    second(torch.ones(2, 3))
    one.close()
    second(torch.ones(2, 3))
    two.close()
    assert (len(probes.open(tmp_path / "one")["p", "0"]), len(probes.open(tmp_path / "two")["p", "0"])) == (2, 2)
    assert Module.__call__ is before


def test_a_method_that_the_program_replaces_during_the_run_is_not_restored(tmp_path: Path) -> None:
    original, iterate = GradScaler.step, DataLoader.__iter__
    with probes.attach(net(), ACTS, out=tmp_path / "r") as run, run.epoch(0):
        run.plan.trees[""].model(torch.ones(2, 3))
        ours = GradScaler.step

        def mine(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            return ours(scaler, *args, **kwargs)

        GradScaler.step = mine  # type: ignore[method-assign]  # as a program may do
    assert GradScaler.step is mine
    assert DataLoader.__iter__ is iterate
    GradScaler.step = original  # type: ignore[method-assign]  # as it was


def test_a_run_that_is_discarded_leaves_no_hooks_and_no_files(tmp_path: Path) -> None:
    model = net()
    run = probes.attach(model, ACTS, out=tmp_path / "r", automatic=True)
    run.start()
    model(torch.ones(2, 3))
    run.discard()
    assert not (tmp_path / "r").exists()
    assert not any(module._forward_hooks for module in model.modules())


def test_one_look_at_one_call_needs_no_epoch(tmp_path: Path) -> None:
    with probes.attach(net(), ACTS, out=tmp_path / "r") as run:
        run.plan.trees[""].model(torch.ones(2, 3))
    assert clocks(tmp_path / "r") == [(0, 0)]
    assert probes.open(tmp_path / "r").state == {0: "complete"}


def test_gradients_of_an_evaluation_are_captured_for_values_and_parameters(tmp_path: Path) -> None:
    """Grad-CAM: a backward in eval mode, without any training."""
    model = net().eval()
    when = {"phases": ["eval"]}
    spec = {
        "version": 1,
        "probes": {
            "p": {"hook": "backward", "modules": ["0"], "when": when},
            "w": {"hook": "tensor", "tensors": ["0.weight"], "stage": "accumulated", "when": when},
        },
    }
    gradients = []
    with probes.attach(model, spec, out=tmp_path / "r"):
        for number in range(2):
            model.zero_grad()
            model(torch.full((2, 3), number + 1.0)).sum().backward()
            gradients.append(model[0].weight.grad.clone())
    read = probes.open(tmp_path / "r").sel(phase="eval")
    assert clocks(tmp_path / "r", "eval") == [(0, 0), (0, 1)]
    assert all((capture.value == grad.numpy()).all() for capture, grad in zip(read["w", "0.weight"], gradients, strict=True))


class TimeLimit(Exception):
    """What the program's signal handler raises."""


def test_an_exception_of_the_programs_signal_handler_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(_number: int, _frame: object) -> None:
        raise TimeLimit

    plain = Norm.begin

    def begin(self: Transform, context: Any) -> Any:
        work = plain(self, context)  # type: ignore[arg-type]  # a Norm

        def slow(value: Tensor) -> Tensor:
            if struck and not fired:
                fired.append(True)
                signal.raise_signal(signal.SIGALRM)
            found: Tensor = work(value)
            return found

        return slow

    struck: list[bool] = []
    fired: list[bool] = []
    monkeypatch.setattr(Norm, "begin", begin)
    before = signal.signal(signal.SIGALRM, limit)
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "norm"}]}}}
    model, raised = net(), 0
    try:
        with probes.attach(model, spec, out=tmp_path / "r") as run:
            for number in range(4):
                struck += [True] if number == 1 else []
                try:
                    with run.step():
                        model(torch.ones(2, 3))
                except TimeLimit:
                    raised += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised == 1
    assert [one.clock.step for one in probes.open(tmp_path / "r")["p", "0"]] == [0, 2, 3]


def test_a_full_disk_does_not_stop_the_program_unless_the_spec_requires_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Journal, *args: Any, **kwargs: Any) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(Journal, "commit", full)
    for name, spec in (("disable", ACTS), ("raise", {**ACTS, "on_error": "raise"})):
        saved = False
        try:
            with probes.attach(net(), spec, out=tmp_path / name) as run, run.epoch(0):
                run.plan.trees[""].model(torch.ones(2, 3))
            saved = True
        except StorageError:
            pass
        assert saved == (name == "disable")
    assert capsys.readouterr().err.count("capturing stops, the program continues: no space left") == 1


def test_the_end_states_the_counts_and_warns_if_they_mislead(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
    with probes.attach(model, ACTS, out=tmp_path / "r") as run:
        for (x,) in data:
            for _ in range(2):
                model(x).sum().backward()
                optimizer.step()
        model.eval()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    text = str(run.summary())
    assert "seen: 5 optimizer steps, 2 batches in 1 pass, 4 training calls, 1 other call; steps: 1 `eval`, 2 `train`" in text
    assert "5 optimizer steps are 2 steps" in text
    assert "`clock: {step: update}`" in text
    assert "`model.train()`" in text
    assert run.summary().as_dict()["seen"]["updates"] == 5


def test_the_end_says_training_batches_where_no_loader_is_used_for_training(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, ACTS, out=tmp_path / "r") as run:
        model.eval()(torch.ones(2, 3))
    assert "seen: 0 optimizer steps, 0 training batches in 0 passes of a loader, 0 training calls, 1 other call" in str(run.summary())


def test_an_evaluation_within_a_step_commits_itself_and_nothing_of_the_step_around_it(tmp_path: Path) -> None:
    model = net()
    sinks = {"record": {"kind": "hdf5"}, "log": {"kind": "jsonl", "max_elements": 100}}
    spec = {**ACTS, "sinks": sinks, "probes": {"p": {**ACTS["probes"]["p"], "transforms": [{"kind": "norm"}]}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0):
        for number in range(3):
            try:
                with run.step():
                    model(torch.full((2, 3), float(number)))
                    with run.phase("eval"):
                        model(torch.full((2, 3), 10.0 + number))
                    model(torch.full((2, 3), 20.0 + number))
                    assert number != 1
            except AssertionError:
                pass
    assert clocks(tmp_path / "r") == [(0, 0), (0, 0), (0, 2), (0, 2)]
    assert clocks(tmp_path / "r", "eval") == [(0, 0), (0, 1), (0, 2)]
    lines = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines() if "step" in line]
    logged = [(line["phase"], line["step"]) for line in lines]
    assert set(logged) == {("eval", 0), ("eval", 1), ("eval", 2), ("train", 0), ("train", 2)}
    assert probes.verify(tmp_path / "r").ok


def test_a_run_that_was_suspended_looks_at_its_model_once_for_each_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    model = net()
    with probes.attach(model, ACTS, out=tmp_path / "r") as run:
        monkeypatch.setattr(run.events, "renew", lambda: looks.append(None))
        for _ in range(3):
            with run.suspend():
                pass
        looks.clear()
        with run.epoch(0), run.step():
            model(torch.ones(2, 3))
    assert len(looks) == 1


def test_a_run_does_not_search_a_loss_and_a_second_model_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, teacher, loss = net(), net(), nn.MSELoss()
    asked: list[Module] = []
    with probes.attach(model, ACTS, out=tmp_path / "r") as run:
        find = run.events._find
        monkeypatch.setattr(run.events, "_find", lambda module: asked.append(module) or find(module))
        for x in run.steps([torch.ones(2, 3)] * 20):
            loss(model(x), teacher(x)).backward()
    others = [module for module in asked if module is not model]
    assert len(others) <= 2 * (len(list(teacher.modules())) + 1) * 2  # it enters and is ignored; once before the epoch, once in it
    assert len(clocks(tmp_path / "r")) == 20


@pytest.mark.parametrize("end", ["close", "discard"])
def test_a_call_that_another_thread_has_begun_when_the_run_ends_opens_no_step(tmp_path: Path, end: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    run = probes.attach(model, ACTS, out=tmp_path / "r", automatic=True)
    run.start()
    model(torch.ones(1, 2))
    getattr(run, end)()
    names = sorted(path.name for path in tmp_path.rglob("*"))
    assert run.engine.enter("train", 7, grad=True) is None  # its call was seen before the run stopped listening
    run.engine.leave(7, raised=False)
    assert run.failure is None
    assert sorted(path.name for path in tmp_path.rglob("*")) == names
