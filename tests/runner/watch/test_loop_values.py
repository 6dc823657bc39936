from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import probes
from probes.errors import RunError, UsageError


def spec(*values: str, **more: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {"p": {"values": list(values), **more}}}


def net() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))


def batches(count: int = 4) -> list[torch.Tensor]:
    return list(torch.randn(count, 5, 4, generator=torch.Generator().manual_seed(1)))


def train(model: nn.Module, run: Any, data: Any) -> list[float]:
    """Log the loss, and before the first call of each step its number."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for index, x in enumerate(run.steps(data)):
        run.log(number=index)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
        losses.append(loss.item())
    return losses


def test_logged_values_have_the_clock_of_their_step(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, spec("loop.loss", "loop.number"), out=tmp_path / "run") as run:
        losses = [train(model, run, batches()) for _ in run.epochs(2)]
    found = probes.open(tmp_path / "run")
    loss, number = found["p", "", "loop.loss"], found["p", "", "loop.number"]
    assert loss.dtype == "float32"
    assert loss.numpy().tolist() == [np.float32(one) for epoch in losses for one in epoch]
    assert number.numpy().tolist() == [0, 1, 2, 3] * 2
    assert loss.clocks["epoch"].tolist() == number.clocks["epoch"].tolist() == [0] * 4 + [1] * 4
    assert loss.steps.tolist() == number.steps.tolist() == [0, 1, 2, 3] * 2
    assert probes.verify(tmp_path / "run").ok


def test_values_logged_in_a_skipped_item_are_dropped(tmp_path: Path) -> None:
    model, total, expected = net(), torch.zeros(()), []
    with probes.attach(model, spec("loop.number", "loop.total"), out=tmp_path / "run") as run, run.epoch(0):
        for index, x in enumerate(run.steps(batches(6))):
            run.log(number=index, total=total)
            before = total.item()
            total += 1  # in place, while the value waits for the call
            if index in (0, 3, 5):
                continue
            expected.append((float(index), before))
            model(x)
    found = probes.open(tmp_path / "run")
    number, total_found = found["p", "", "loop.number"], found["p", "", "loop.total"]
    assert number.steps.tolist() == total_found.steps.tolist() == [0, 1, 2]
    assert list(zip(number.numpy().tolist(), total_found.numpy().tolist(), strict=True)) == expected


def test_a_schedule_applies_to_logged_values_too(tmp_path: Path) -> None:
    model = net()
    when = {"steps": {"every": 2}, "calls": {"at": [1]}}
    with probes.attach(model, spec("loop.loss", when=when), out=tmp_path / "run") as run, run.epoch(0):
        for x in run.steps(batches()):
            for part in (0.0, 1.0):
                model(x)
                run.log(loss=part)
    found = probes.open(tmp_path / "run")["p", ""]
    assert found.numpy().tolist() == [1.0, 1.0]
    assert found.clocks[["step", "microstep", "call"]].tolist() == [(0, 1, 1), (2, 1, 1)]


def test_a_value_logged_after_its_step_belongs_to_that_step(tmp_path: Path) -> None:
    model = net()
    probe = spec("loop.accuracy", when={"phases": ["eval"]})
    with probes.attach(model, probe, out=tmp_path / "run") as run:
        for epoch in run.epochs(2):
            train_steps = run.steps(batches(2))
            for x in train_steps:
                model(x)
            with run.phase("eval"), torch.no_grad():
                model(batches()[0])
            run.log(accuracy=0.5 + epoch)
        lines = str(run.summary())
    found = probes.open(tmp_path / "run")["p", ""]
    assert found.numpy().tolist() == [0.5, 1.5]
    assert found.clocks["epoch"].tolist() == [0, 1]
    assert "not logged" not in lines


def test_a_value_logged_in_a_named_phase_within_a_training_step_belongs_to_the_last_step_of_that_phase(tmp_path: Path) -> None:
    model = net()
    probe = spec("loop.accuracy", "loop.after", when={"phases": ["train", "eval"]}, expect={"fires": "some"})
    with probes.attach(model, probe, out=tmp_path / "run") as run:
        for epoch in run.epochs(2):
            for index, x in enumerate(run.steps(batches(3))):
                model(x)
                if index < 2:
                    with run.phase("eval"), torch.no_grad():
                        for part in DataLoader(x, batch_size=2):
                            model(part)
                        run.log(accuracy=10.0 * epoch + index)
                    run.log(after=epoch)
    found = probes.open(tmp_path / "run")
    accuracy, after = found["p", "", "loop.accuracy"], found["p", "", "loop.after"]
    assert (accuracy.key.phase, accuracy.numpy().tolist()) == ("eval", [0.0, 1.0, 10.0, 11.0])
    assert accuracy.clocks[["epoch", "step"]].tolist() == [(0, 2), (0, 5), (1, 2), (1, 5)]
    assert (after.key.phase, after.clocks[["epoch", "step"]].tolist()) == ("train", [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert probes.verify(tmp_path / "run").ok


def test_a_value_of_an_item_in_a_named_phase_waits_for_the_call_of_that_item(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, spec("loop.index", when={"phases": ["eval"]}), out=tmp_path / "run") as run:
        for x in run.steps(batches(2)):
            model(x)
            with run.phase("eval"):
                for index, part in enumerate(run.steps(batches(2))):
                    run.log(index=index)
                    model(part)
    found = probes.open(tmp_path / "run")["p", ""]
    assert found.numpy().tolist() == [0, 1, 0, 1]
    assert found.steps.tolist() == [0, 1, 2, 3]


def test_a_step_counts_its_logged_values_on_after_a_step_of_another_phase_within_it(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, spec("loop.x", when={"phases": ["train", "eval"]}), out=tmp_path / "run") as run, run.epoch(0):
        for x in run.steps(batches(2)):
            model(x)
            run.log(x=1.0)
            with run.phase("eval"):
                model(x)
                run.log(x=2.0)
            run.log(x=3.0)
        lines = str(run.summary())
    train, evaluated = (probes.open(tmp_path / "run").sel(phase=phase)["p", ""] for phase in ("train", "eval"))
    assert train.numpy().tolist() == [1.0, 3.0, 1.0, 3.0]
    assert train.clocks[["step", "call"]].tolist() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert evaluated.numpy().tolist() == [2.0, 2.0]
    assert "not logged" not in lines


def test_a_late_value_of_one_step_is_not_counted_for_the_open_one(tmp_path: Path) -> None:
    model = net()
    probe = spec("loop.x", when={"phases": ["train", "eval"]}, expect={"fires": "some"})
    with probes.attach(model, probe, out=tmp_path / "run") as run, run.epoch(0):
        for x in run.steps(batches(2)):
            model(x)
            with run.phase("eval"):
                model(x)
                run.log(x=2.0)
        lines = str(run.summary())
    assert "not logged 2 times" in lines
    assert "failed" not in lines


def test_containers_and_kinds_of_numbers_are_leaves(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, spec("loop"), out=tmp_path / "run") as run, run.epoch(0), run.step():
        model(batches()[0])
        half = torch.ones(2, dtype=torch.bfloat16)
        run.log(**{"val/acc": 1, "parts": {"a": True, "b": [2.5, np.float32(3)]}, "half": half, "rows": np.arange(3)})
    found = {series.key.leaf: (series.dtype, series.numpy()[0].tolist()) for series in probes.open(tmp_path / "run").series}
    assert found == {
        'loop."val/acc"': ("int64", 1),
        "loop.parts.a": ("bool", True),
        "loop.parts.b.0": ("float64", 2.5),
        "loop.parts.b.1": ("float32", 3.0),
        "loop.half": ("bfloat16", [1.0, 1.0]),
        "loop.rows": ("int64", [0, 1, 2]),
    }


BAD = (
    ("text", "`bad` is 'text', a str; log numbers"),
    ({"deep": [None]}, "`bad.deep.0` is None, a NoneType"),
    (1 << 70, "`bad` cannot be stored"),
    (torch.zeros(1 << 17), "`bad` has 131,072 elements, and a logged value has at most 65,536"),
)


def test_values_that_cannot_be_logged_are_refused_by_name_and_uncaptured_ones_are_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also that nothing is logged outside of any epoch and before the first step of one."""
    model = net()
    with probes.attach(model, spec("loop.loss", "loop.bad"), out=tmp_path / "run") as run:
        with pytest.raises(UsageError, match="no epoch is open: log within"):
            run.log(loss=1.0)
        with run.epoch(0):
            with pytest.raises(UsageError, match="no step of epoch 0 has begun"):
                run.log(loss=1.0)
            train(model, run, batches())
            for value, message in BAD:
                with pytest.raises(UsageError, match=message):
                    run.log(bad=value)
            run.log(bad=0)
    assert capsys.readouterr().err.count("`number` was logged, and no probe captures it: add `loop.number`") == 1


def test_a_value_that_is_never_logged_fails_the_run(tmp_path: Path) -> None:
    model = net()
    run = probes.attach(model, spec("loop.los"), out=tmp_path / "run")
    run.start()
    train(model, run, batches())
    with pytest.raises(RunError, match="captured nothing: 4 times not logged"):
        run.close()
    run = probes.attach(model, spec("loop.rare", expect={"fires": "each_step"}), out=tmp_path / "strict")
    run.start()
    for index, x in enumerate(run.steps(batches())):
        model(x)
        if not index:
            run.log(rare=1)
    with pytest.raises(RunError, match=r"`loop.rare` of the model is missing in 3 of 4 steps"):
        run.close()


def test_a_dropped_step_keeps_no_logged_value(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, spec("loop.loss"), out=tmp_path / "run") as run, run.epoch(0):
        train(model, run, batches(2))
        with suppress(ZeroDivisionError), run.step():
            model(batches()[0])
            run.log(loss=1 / 2)
            run.log(loss=1 / 0)
    assert len(probes.open(tmp_path / "run")["p", ""]) == 2


def test_an_unmodified_program_logs_its_loss_and_the_settings_of_its_optimizer(tmp_path: Path) -> None:
    """Learning rates, weight decay, momentum and betas of each group; the loss is that before the loss scale."""
    model = net()
    first, second = model.children()
    groups = [{"params": first.parameters()}, {"params": second.parameters(), "lr": 0.01, "weight_decay": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    scaler = torch.amp.GradScaler("cpu")
    losses, backward = [], torch.Tensor.backward
    with probes.attach(model, spec("loop"), out=tmp_path / "run", automatic=True):
        for _ in range(2):
            for x in DataLoader(torch.stack(batches()), batch_size=2):
                loss = model(x).square().mean()
                losses.append(loss.item())
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            schedule.step()
    assert torch.Tensor.backward is backward
    found = {series.key.leaf: series.numpy().tolist() for series in probes.open(tmp_path / "run").series}
    assert found.pop("loop.loss") == [np.float32(loss) for loss in losses]
    assert found["loop.lr.0"] == [0.1, 0.1, 0.05, 0.05]
    assert found["loop.lr.1"] == [0.01, 0.01, 0.005, 0.005]
    assert found["loop.weight_decay.1"] == [0.5] * 4
    assert found["loop.momentum.0"] == [0.9] * 4
    assert all(len(values) == 4 for values in found.values())


def test_settings_of_two_optimizers_are_numbered_on_and_those_of_other_models_are_left_out(tmp_path: Path) -> None:
    model, other = net(), net()
    first, second = model.children()
    optimizers = [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(second.parameters(), lr=0.2)]
    elsewhere = torch.optim.SGD(other.parameters(), lr=0.3)
    with probes.attach(model, spec("loop.lr", "loop.betas"), out=tmp_path / "run", automatic=True):
        for x in DataLoader(torch.stack(batches()), batch_size=2):
            (model(x) + other(x)).square().mean().backward()
            for optimizer in (optimizers[0], elsewhere, optimizers[1]):
                optimizer.step()
    found = {series.key.leaf: series.numpy().tolist() for series in probes.open(tmp_path / "run").series}
    assert found == {"loop.lr.0": [0.1, 0.1], "loop.lr.1": [0.2, 0.2], "loop.betas.1.0": [0.9, 0.9], "loop.betas.1.1": [0.999, 0.999]}


def test_the_loss_of_a_program_is_one_for_each_scalar_backward(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probes.attach(model, spec("loop.loss"), out=tmp_path / "run", automatic=True):
        for x in DataLoader(torch.stack(batches()), batch_size=2):
            model(x).mean().backward()
            out = model(x)
            out.backward(torch.ones_like(out))
            model(x).sum().backward()
            optimizer.step()
    assert probes.open(tmp_path / "run")["p", ""].clocks[["step", "call"]].tolist() == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_logging_leaves_losses_weights_and_random_state_as_they_are(tmp_path: Path) -> None:
    results = []
    for probed in (False, True):
        model = net()
        torch.manual_seed(4)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        manager = probes.attach(model, spec("loop"), out=tmp_path / "run", automatic=True) if probed else torch.enable_grad()
        with manager:
            for x in DataLoader(torch.stack(batches()), batch_size=2, shuffle=True):
                optimizer.zero_grad()
                nn.functional.dropout(model(x)).square().mean().backward()
                optimizer.step()
        results.append([*(parameter.detach().clone() for parameter in model.parameters()), torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
