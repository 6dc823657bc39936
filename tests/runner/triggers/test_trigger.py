"""Captures that wait for a value that is not finite."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

import probes
from probes.errors import PlanError, Stopped
from probes.runner.run import Run

STEPS = 8


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x)


class Net(nn.Module):
    """Fails where its input is 0: the logarithm of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()
        self.log = Log()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.log(self.scale(x).abs()))
        return found


class Backfire(torch.autograd.Function):
    """The identity, whose gradient is replaced."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, wrong: float) -> Tensor:
        ctx.wrong = wrong
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.wrong, None


class Mend(nn.Module):
    """The identity, whose gradient is mended on its way back."""

    def forward(self, x: Tensor) -> Tensor:
        found = x.clone()
        if found.requires_grad:
            found.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]  # untyped in torch
        return found


class Wrong(nn.Module):
    """Multiplies the gradient on its way back with `factor`."""

    factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = Backfire.apply(x, self.factor)  # type: ignore[no-untyped-call]  # untyped in torch
        return found


def spec(before: int = 2, then: str = "stop", **probe: Any) -> dict[str, Any]:
    one = {"modules": ["**"], "values": ["output", "grad_output"], **probe}
    return {"version": 1, "probes": {"hunt": {**one, "when": {"trigger": {"kind": "nonfinite", "before": before, "then": then}}}}}


def batches(*bad: int, steps: int = STEPS) -> list[Tensor]:
    """Batches of ones; those in `bad` hold a zero at [1, 2]."""
    made = [torch.ones(2, 3) + torch.rand(2, 3) for _ in range(steps)]
    for index in bad:
        made[index][1, 2] = 0
    return made


def train(
    run: Run,
    model: nn.Module,
    data: list[Tensor],
    *,
    epochs: int = 1,
    accumulate: int = 1,
    before: Callable[[int], None] = lambda _index: None,
) -> None:
    """Train on the data in each epoch; `before` is called with the number of each batch of the run."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = len(data) // epochs
    for epoch in run.epochs(epochs):
        for index, x in enumerate(run.steps(data[epoch * count : (epoch + 1) * count], accumulate=accumulate)):
            before(index)
            model(x).square().mean().backward()
            if index % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()


def stopped(model: nn.Module, wanted: dict[str, Any], out: Path, data: list[Tensor], **loop: Any) -> str:
    """What a training is stopped with."""
    with pytest.raises(Stopped) as caught, probes.attach(model, wanted, out=out) as run:
        train(run, model, data, **loop)
    return str(caught.value)


def steps_of(read: Any, target: str, leaf: str = "output") -> list[int]:
    series = [one for one in read.series if (one.key.target, one.key.leaf) == (target, leaf)]
    return [int(step) for step in series[0].clocks["step"]] if series else []


def closing(read: Any, epoch: int = 0) -> dict[str, Any]:
    import h5py

    with h5py.File(read.path / f"epoch-{epoch:04d}.h5") as file:
        found: dict[str, Any] = json.loads(file["closing"][()])["trigger"]
        return found


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


def test_the_steps_before_and_the_step_itself_are_written_with_their_own_clocks(model: Net, tmp_path: Path) -> None:
    stopped(model, spec(), tmp_path / "run", batches(5))
    read = probes.open(tmp_path / "run")
    assert steps_of(read, "log") == [3, 4, 5]
    assert steps_of(read, "scale", "grad_output") == [3, 4, 5]
    assert read["hunt", "log", "output"].numpy()[2, 1, 2] == -float("inf")
    assert probes.verify(tmp_path / "run").ok


def test_the_message_names_the_first_value_in_forward_order(model: Net, tmp_path: Path) -> None:
    with pytest.raises(Stopped) as caught, probes.attach(model, spec(), out=tmp_path / "run") as run:
        train(run, model, batches(5))
    assert str(caught.value) == (
        "first non-finite value: -inf in `output` of `log` (Log) at [1, 2], epoch 0, train step 5; "
        "1 of 6 elements are not finite (0 nan, 1 inf); "
        "its inputs were not checked: capture `input` too; stopped by the trigger of probe `hunt`"
    )
    assert caught.value.exit_code == 1


def test_training_stops_before_the_weights_are_damaged(model: Net, tmp_path: Path) -> None:
    stopped(model, spec(), tmp_path / "run", batches(0))
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_the_file_records_the_event(model: Net, tmp_path: Path) -> None:
    stopped(model, spec(), tmp_path / "run", batches(5))
    (event,) = closing(probes.open(tmp_path / "run"))["events"]
    assert {name: event[name] for name in ("target", "leaf", "step", "index", "number", "inf", "steps", "then")} == {
        "target": "log",
        "leaf": "output",
        "step": 5,
        "index": [1, 2],
        "number": "-inf",
        "inf": 1,
        "steps": 3,
        "then": "stop",
    }


def test_nothing_is_written_and_nothing_is_wrong_where_all_is_finite(model: Net, tmp_path: Path) -> None:
    with probes.attach(model, spec(), out=tmp_path / "run") as run:
        train(run, model, batches(steps=2 * STEPS), epochs=2)
    assert not probes.open(tmp_path / "run").series
    assert "every value that was checked is finite" in str(run.summary())
    (account,) = [one for one, binding in zip(run.accounts[0], run.plan.bindings, strict=True) if binding.value == "output"][:1]
    assert (account.fired, account.written, account.skipped["filtered"]) == (STEPS, 0, STEPS)


def test_the_buffer_reaches_into_the_epoch_before(model: Net, tmp_path: Path) -> None:
    stopped(model, spec(before=3), tmp_path / "run", batches(STEPS + 1, steps=2 * STEPS), epochs=2)
    series = probes.open(tmp_path / "run")["hunt", "log", "output"]
    assert series.clocks["epoch"].tolist() == [0, 0, 1, 1]
    assert series.clocks["step"].tolist() == [6, 7, 0, 1]
    assert probes.verify(tmp_path / "run").ok


def test_training_continues_and_the_trigger_waits_for_a_step_without_an_event(model: Net, tmp_path: Path) -> None:
    with probes.attach(model, spec(before=1, then="continue", values=["output"]), out=tmp_path / "run") as run, torch.no_grad():
        model.train()
        for _ in run.epochs(1):
            for x in run.steps(batches(2, 3, 6)):
                with torch.enable_grad():
                    model(x)
    read = probes.open(tmp_path / "run")
    assert steps_of(read, "log") == [1, 2, 5, 6]
    assert [event["step"] for event in closing(read)["events"]] == [2, 6]


def test_a_step_that_raised_is_written_where_something_was_found_in_it(model: Net, tmp_path: Path) -> None:
    def refuse(_module: nn.Module, _args: object, output: Tensor) -> None:
        if not output.isfinite().all():
            raise ZeroDivisionError

    everything: dict[str, Any] = spec()
    everything["probes"]["all"] = {"hook": "forward", "modules": ["scale"]}
    model.head.register_forward_hook(refuse)
    with pytest.raises(ZeroDivisionError), probes.attach(model, everything, out=tmp_path / "run") as run:
        train(run, model, batches(2))
    read = probes.open(tmp_path / "run")
    assert steps_of(read, "log") == [0, 1, 2]
    assert read["all", "scale", "output"].clocks["step"].tolist() == [0, 1]  # others are dropped with their step


def test_every_probe_with_a_trigger_is_written_when_one_fires(model: Net, tmp_path: Path) -> None:
    trigger = {"kind": "nonfinite", "before": 1, "then": "stop"}
    two = {
        "version": 1,
        "defaults": {"when": {"trigger": trigger}},
        "probes": {
            "outputs": {"hook": "forward", "modules": ["log"]},
            "weights": {"tensors": ["scale.weight"], "values": ["data"], "when": {"trigger": {**trigger, "before": 3}}},
        },
    }
    stopped(model, two, tmp_path / "run", batches(5))
    read = probes.open(tmp_path / "run")
    assert steps_of(read, "log") == [4, 5]
    assert steps_of(read, "scale.weight", "data") == [2, 3, 4, 5]


def test_a_gradient_is_named_where_it_first_was_not_finite(tmp_path: Path) -> None:
    wrong = Wrong()
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), wrong, nn.Linear(3, 2))

    def fail(index: int) -> None:
        wrong.factor = float("nan") if index == 4 else 1.0

    message = stopped(model, spec(), tmp_path / "run", batches(), before=fail)
    assert "nan in `grad_output` of `1` (Tanh) at [0, 0], epoch 0, train step 4" in message
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_weights_that_an_optimizer_damaged_are_named(tmp_path: Path) -> None:
    last = nn.Linear(3, 2)

    def fail(index: int) -> None:
        if index == 3:
            nn.init.constant_(last.weight, float("inf"))

    message = stopped(nn.Sequential(nn.Linear(3, 3), last), spec(values=["output"]), tmp_path / "run", batches(), before=fail)
    assert "`output` of `1` (Linear) at [0, 0], epoch 0, train step 3" in message
    assert "its weights are not finite: `weight`" in message


def test_final_gradients_fire_the_trigger_after_the_optimizer_step(tmp_path: Path) -> None:
    model = nn.Sequential(Wrong(), nn.Linear(3, 2))
    probe = {"tensors": ["1.weight"], "values": ["grad"], "stage": "final", "when": spec()["probes"]["hunt"]["when"]}
    data = [*batches(steps=3), torch.full((2, 3), float("inf"))]
    assert "`grad` of `1.weight`" in stopped(model, {"version": 1, "probes": {"hunt": probe}}, tmp_path / "run", data)
    assert steps_of(probes.open(tmp_path / "run"), "1.weight", "grad") == [1, 2, 3]


def test_the_microstep_is_named_under_accumulation(model: Net, tmp_path: Path) -> None:
    message = stopped(model, spec(), tmp_path / "run", batches(6), accumulate=4)
    assert "`output` of `log` (Log) at [1, 2], epoch 0, train step 1, microstep 2" in message
    assert probes.open(tmp_path / "run")["hunt", "log", "output"].clocks["microstep"].tolist() == [0, 1, 2, 3, 0, 1, 2]


def scaled_steps(
    run: Run, model: nn.Module, scaler: GradScaler, data: list[Tensor], *, fused: bool = False, by: float = 1
) -> Iterator[int]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    for _ in run.epochs(1):
        for index, x in enumerate(run.steps(data)):
            yield index
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(x).float().square().mean() * by
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_that_a_grad_scaler_skips_fires_no_trigger(fused: bool, model: Net, tmp_path: Path) -> None:
    scaler = GradScaler("cpu", init_scale=3e38)
    everything = spec()
    everything["probes"]["final"] = {**everything["probes"]["hunt"], "tensors": ["**.weight"], "values": ["grad"], "stage": "final"}
    del everything["probes"]["final"]["modules"]
    with probes.attach(model, everything, out=tmp_path / "run") as run:
        list(scaled_steps(run, model, scaler, batches(), fused=fused, by=20))
    assert scaler.get_scale() < 3e38  # it did overflow
    assert not closing(probes.open(tmp_path / "run"))["events"]
    assert closing(probes.open(tmp_path / "run"))["dismissed"] > 0
    assert "overflowed in steps that GradScaler skipped; the first: " in str(run.summary())


def test_a_value_of_the_forward_fires_the_trigger_under_a_grad_scaler(model: Net, tmp_path: Path) -> None:
    with pytest.raises(Stopped) as caught, probes.attach(model, spec(), out=tmp_path / "run") as run:
        list(scaled_steps(run, model, GradScaler("cpu"), batches(5)))
    assert "-inf in `output` of `log` (Log) at [1, 2], epoch 0, train step 5" in str(caught.value)
    assert steps_of(probes.open(tmp_path / "run"), "log") == [3, 4, 5]


def test_a_gradient_that_a_grad_scaler_accepts_fires_the_trigger(tmp_path: Path) -> None:
    """Not finite where the probe looks, and mended before it reaches a parameter."""
    wrong = Wrong()
    model = nn.Sequential(nn.Linear(3, 3), Mend(), nn.Tanh(), wrong, nn.Linear(3, 2))
    wrong.factor = float("nan")
    with pytest.raises(Stopped) as caught, probes.attach(model, spec(values=["grad_output"]), out=tmp_path / "run") as run:
        list(scaled_steps(run, model, GradScaler("cpu"), batches()))
    assert "`grad_output` of `2` (Tanh)" in str(caught.value)
    assert "epoch 0, train step 0" in str(caught.value)


def evaluate(run: Run, model: nn.Module, data: list[Tensor]) -> None:
    for _ in run.epochs(1):
        for x in run.steps(batches(steps=4)):
            model(x)
        with run.phase("eval"), torch.no_grad():
            for x in data:
                model(x)


def test_steps_of_eval_fire_the_trigger_too(model: Net, tmp_path: Path) -> None:
    everything = spec(values=["output"])
    everything["probes"]["hunt"]["when"]["phases"] = ["train", "eval"]
    with pytest.raises(Stopped) as caught, probes.attach(model, everything, out=tmp_path / "run") as run:
        evaluate(run, model, batches(2))
    assert "epoch 0, eval step 2" in str(caught.value)
    read = probes.open(tmp_path / "run")
    assert {(one.key.phase, tuple(one.clocks["step"].tolist())) for one in read.series} == {("eval", (0, 1, 2))}


def test_the_oldest_captures_are_dropped_and_counted(model: Net, tmp_path: Path) -> None:
    small = {**spec(before=4, values=["output"]), "limits": {"buffer_bytes": 4096}}
    with pytest.raises(Stopped), probes.attach(model, small, out=tmp_path / "run") as run:
        train(run, model, batches(7))
    read = probes.open(tmp_path / "run")
    assert (steps_of(read, "scale"), steps_of(read, "log")) == ([4, 5, 6, 7], [3, 4, 5, 6, 7])
    assert [account.skipped["ring full"] for account in run.accounts[0]] == [4, 0, 0]
    assert "older captures were dropped before (`limits.buffer_bytes`)" in str(run.summary())


def test_a_buffer_above_the_memory_limit_is_refused_before_the_run(model: Net, tmp_path: Path) -> None:
    probe = {"tensors": ["scale.weight"], "values": ["data"], "when": spec(before=500)["probes"]["hunt"]["when"]}
    with pytest.raises(PlanError) as caught:
        probes.attach(model, {"version": 1, "probes": {"weights": probe}, "limits": {"buffer_bytes": "4 KiB"}}, out=tmp_path / "run")
    (problem,) = caught.value.problems
    assert problem.code == "ring-too-large"
    assert "keeps 501 steps in memory; all captures that wait for a trigger need at least 6,012 bytes" in problem.message
    assert problem.hint == "write `before: 340`, or raise `limits.buffer_bytes`"


def test_no_attribute_is_left_on_torch(model: Net, tmp_path: Path) -> None:
    before = dict(vars(GradScaler))
    stopped(model, spec(), tmp_path / "run", batches(1))
    assert vars(GradScaler) == before


def test_losses_and_weights_equal_those_of_a_run_without_probes(tmp_path: Path) -> None:
    def trained(out: Path | None) -> Net:
        torch.manual_seed(1)
        model, data = Net(), batches()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if out is not None:
            with probes.attach(model, spec(), out=out) as run:
                train(run, model, data)
            return model
        for x in data:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model

    plain, probed = trained(None), trained(tmp_path / "run")
    assert all(torch.equal(one, other) for one, other in zip(plain.parameters(), probed.parameters(), strict=True))
