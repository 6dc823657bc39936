"""Captures that are kept, or written, only where a number of them is unusual; against the same choice made by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import PlanError, RunError, Stopped
from tests.runner.in_memory import in_memory

STEPS = 40


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def batch(index: int, spikes: tuple[int, ...] = (30,)) -> Tensor:
    values = torch.randn(5, 4, generator=torch.Generator().manual_seed(index))
    return values * 50 if index in spikes else values


def outputs() -> list[Tensor]:
    model = net()
    return [model[0](batch(index)).detach() for index in range(STEPS)]  # type: ignore[index,operator]  # the model is a Sequential


def run_with(spec_probes: dict[str, Any], *, spikes: tuple[int, ...] = (30,), backward: bool = False, **more: Any) -> Any:
    model = net()
    with in_memory(model, {"version": 1, "probes": spec_probes, **more}) as run, run.epoch(0):
        for index in run.steps(range(STEPS)):
            loss = model(batch(index, spikes)).square().mean()
            if backward:
                model.zero_grad()
                loss.backward()
            if any(probe.of_loop for probe in run.engine.plan.spec.probes.values()):
                run.engine.log({"loss": loss})
    return run


NORMS = [value.norm().item() for value in outputs()]
MEANS = [value.mean().item() for value in outputs()]
ABSOLUTE: dict[str, tuple[dict[str, Any], list[bool]]] = {
    "above": ({"of": {"kind": "norm"}, "above": 6}, [one > 6 for one in NORMS]),
    "below": ({"of": {"kind": "norm"}, "below": 4}, [one < 4 for one in NORMS]),
    "between": ({"of": {"kind": "norm"}, "above": 3, "below": 4}, [3 < one < 4 for one in NORMS]),
    "outside": ({"of": {"kind": "reduce", "op": "mean"}, "outside": [-0.1, 0.2]}, [not -0.1 <= one <= 0.2 for one in MEANS]),
    "largest": ({"of": {"kind": "reduce", "op": "max"}, "above": 2.0}, [one.max().item() > 2 for one in outputs()]),
}


def test_a_capture_is_kept_if_its_number_meets_the_condition() -> None:
    run = run_with({name: {"hook": "forward", "modules": ["0"], "where": where} for name, (where, _) in ABSOLUTE.items()})
    for name, (_, kept) in ABSOLUTE.items():
        steps = [index for index, one in enumerate(kept) if one]
        assert 0 < len(steps) < STEPS
        series = run.found[name, "0"]
        assert series.steps.tolist() == steps
        assert torch.equal(series.torch(), torch.stack(outputs())[steps])
        assert run.account(name, "0", "output")["skipped"] == {"filtered": STEPS - len(steps)}


def test_a_condition_without_of_compares_the_stored_number() -> None:
    run = run_with({"p": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "norm"}], "where": {"above": 6}}})
    assert run.found["p", "0"].steps.tolist() == [index for index, one in enumerate(NORMS) if one > 6]


def test_deviations_are_from_the_mean_of_the_numbers_before() -> None:
    where = {"of": {"kind": "norm"}, "outside": [-1.5, 1.5], "deviations": True, "window": 8}
    kept = []
    for index in range(8, STEPS):
        before = NORMS[index - 8 : index]
        if abs(NORMS[index] - statistics.fmean(before)) > 1.5 * statistics.pstdev(before):
            kept.append(index)
    assert 1 < len(kept) < STEPS - 8
    run = run_with({"p": {"hook": "forward", "modules": ["0"], "where": where}})
    assert run.found["p", "0"].steps.tolist() == kept


def test_gradients_and_values_of_several_leaves_are_kept_each_by_its_own_number() -> None:
    wanted = {"modules": ["0"], "values": ["input", "grad_output"], "where": {"of": {"kind": "norm"}, "above": 5}}
    run = run_with({"p": wanted, "all": {**wanted, "where": {"of": {"kind": "norm"}, "outside": [0, 0]}}}, backward=True)
    for leaf in ("input.input", "grad_output"):
        every = run.found["all", "0", leaf].torch()
        chosen = [index for index, one in enumerate(every) if one.norm() > 5]
        if chosen:
            assert run.found["p", "0", leaf].steps.tolist() == chosen
    assert run.found["p", "0", "input.input"].steps.size < STEPS


def test_a_probe_that_keeps_nothing_is_not_an_error_and_a_probe_without_a_number_is() -> None:
    assert not run_with({"p": {"hook": "forward", "modules": ["0"], "where": {"of": {"kind": "norm"}, "above": 1e9}}}).found.series
    with pytest.raises(RunError, match=r"the condition needs one real number, and has float32\[5, 8\]: add `of`"):
        run_with({"p": {"hook": "forward", "modules": ["0"], "where": {"above": 1}}})


def test_a_condition_of_many_numbers_is_refused_before_the_run() -> None:
    probe = {"hook": "tensor", "tensors": ["0.weight"], "values": ["data"], "where": {"above": 1}}
    with pytest.raises(PlanError, match=r"the stored `data` is `float32\[8, 4\]`"):
        probes.resolve({"version": 1, "probes": {"p": probe}}, net())
    probe["where"] = {"of": {"kind": "norm", "dims": [0]}, "above": 1}
    with pytest.raises(PlanError, match=r"`norm` of `data` is `float32\[4\]`"):
        probes.resolve({"version": 1, "probes": {"p": probe}}, net())


def threshold(**keys: Any) -> dict[str, Any]:
    return {"trigger": {"kind": "threshold", **keys}}


def test_a_jump_of_the_loss_writes_the_steps_before_of_every_triggered_probe() -> None:
    run = run_with(
        {
            "loss": {"values": ["loop.loss"], "when": threshold(above=6, deviations=True, before=3)},
            "acts": {"hook": "forward", "modules": ["0"], "when": threshold(of={"kind": "norm"}, above=1e9, before=1)},
        }
    )
    assert run.found["loss", ""].steps.tolist() == [27, 28, 29, 30]
    assert run.found["acts", "0"].steps.tolist() == [29, 30]
    assert torch.equal(run.found["acts", "0"].torch(), torch.stack(outputs())[[29, 30]])
    (event,) = run.closing["trigger"]["events"]
    model = net()
    losses = [model(batch(index)).square().mean().item() for index in range(31)]
    mean, spread = statistics.fmean(losses[10:30]), statistics.pstdev(losses[10:30])
    assert float(event["mean"]) == pytest.approx(mean, rel=1e-5)
    assert float(event["deviation"]) == pytest.approx((losses[30] - mean) / spread, rel=1e-4)
    assert (event["step"], event["bounds"]) == (30, "above 6")


def test_a_trigger_fires_again_only_after_a_step_within_the_bounds() -> None:
    run = run_with({"p": {"hook": "forward", "modules": ["0"], "when": threshold(of={"kind": "norm"}, above=20)}}, spikes=(5, 6, 7, 20))
    assert [event["step"] for event in run.closing["trigger"]["events"]] == [5, 20]
    assert run.found["p", "0"].steps.tolist() == [5, 20]


def test_a_trigger_checks_captures_that_where_leaves_out() -> None:
    keys = {"hook": "forward", "modules": ["0"], "when": threshold(of={"kind": "norm"}, above=20, before=30)}
    run = run_with({"p": {**keys, "where": {"of": {"kind": "norm"}, "below": 4}}})
    assert run.found["p", "0"].steps.tolist() == [index for index in range(30) if NORMS[index] < 4]


def test_a_scaled_gradient_in_a_step_that_is_skipped_fires_nothing() -> None:
    model = net()
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=2.0), torch.optim.SGD(model.parameters(), lr=0.0)
    probe = {"modules": ["0"], "values": ["grad_output"], "when": threshold(of={"kind": "norm"}, outside=[0, 1e9])}
    with in_memory(model, {"version": 1, "probes": {"p": probe}}) as run, run.epoch(0):
        for index in run.steps(range(3)):
            optimizer.zero_grad()
            scaler.scale(model(batch(0)).square().mean() * (float("inf") if index == 1 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert run.closing["trigger"]["events"] == []
    assert run.closing["trigger"]["dismissed"] == 1


def test_a_threshold_stops_the_training_and_the_report_names_the_number(tmp_path: Path) -> None:
    model = net()
    probe = {"hook": "forward", "modules": ["0"], "when": threshold(of={"kind": "norm"}, above=20, then="stop", before=1)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = []

    def loop() -> None:
        with probes.attach(model, {"version": 1, "name": "t", "probes": {"p": probe}}, out=tmp_path / "run") as run:
            for index in run.steps(range(STEPS)):
                model(batch(index)).square().mean().backward()
                optimizer.step()
                steps.append(index)

    said = r"first value beyond the bounds: [\d.]+ for `output` of `0` \(Linear\), epoch 0, train step 30; above 20"
    with pytest.raises(Stopped, match=said):
        loop()
    assert steps[-1] == 29
    found = probes.open(tmp_path / "run")
    assert found["p", "0"].steps.tolist() == [29, 30]
    assert json.loads(json.dumps(found.events))[0]["bounds"] == "above 20"
    assert probes.verify(tmp_path / "run").ok
