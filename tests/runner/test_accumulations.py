"""Statistics over an epoch in real runs, against the whole values of the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import probes
from probes.errors import RunError
from tests.rounding import U32, within

LABELS = ["count", "nonfinite", "mean", "variance", "min", "max"]
ACCUMULATE = {"kind": "accumulate"}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def batches(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(5 if step else 2, 4, generator=generator) for step in range(count)]


def record(out: Path, loop: Any, **found: Any) -> Any:
    net = model()
    spec = {"version": 1, "name": "t", "probes": found}
    with probes.attach(net, spec, out=out) as run:
        loop(run, net)
    assert probes.verify(out).ok
    return probes.open(out)


def train(run: Any, net: nn.Module) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in run.epochs(2):
        for x in run.steps(batches()):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        with run.phase("eval"), torch.no_grad():
            for x in batches(2):
                net(x)


def expected(series: Any, epoch: int) -> list[float]:
    whole = series.sel(epoch=epoch).rows().astype(np.float64)
    return [whole.size, 0, whole.mean(), whole.var(), whole.min(), whole.max()]


def test_one_capture_for_each_phase_and_epoch_summarizes_all_values(tmp_path: Path) -> None:
    where = {"values": ["output"], "modules": ["0", "2"], "when": {"phases": ["train", "eval"]}}
    read = record(tmp_path / "run", train, whole=where, sums={**where, "transforms": [ACCUMULATE]})
    for target in ("0", "2"):
        for phase, last in (("train", 3), ("eval", 1)):
            series = read.sel(phase=phase)["sums", target]
            assert series.signature.coords["stat"] == tuple(LABELS)
            assert series.clocks[["epoch", "step"]].tolist() == [(0, last), (1, last)]
            assert series.clocks["global_step"].tolist() == [last, 2 * last + 1]
            for epoch, values in enumerate(series.numpy()):
                true = expected(read.sel(phase=phase)["whole", target], epoch)
                spread = true[3] ** 0.5
                bound = [0, 0, 2**-39 * (spread + abs(true[2])), 2**-38 * true[3], 0, 0]  # of ours; as much for numpy and the merges
                assert within(values, true, bound)


def test_gradients_and_parameters_accumulate_with_transforms_before_and_after(tmp_path: Path) -> None:
    read = record(
        tmp_path / "run",
        train,
        whole={"values": ["grad_output"], "modules": ["0"]},
        sums={
            "values": ["grad_output"],
            "modules": ["0"],
            "transforms": [{"kind": "abs"}, ACCUMULATE, {"kind": "cast", "dtype": "float32"}],
        },
        weights={"tensors": ["2.weight"], "hook": "tensor", "stage": "final", "transforms": [{"kind": "norm"}, ACCUMULATE]},
    )
    whole = np.abs(read["whole", "0"].sel(epoch=0).rows()).astype(np.float64)
    sums = read["sums", "0"]
    assert sums.dtype == "float32"
    assert sums.numpy()[0][:4] == pytest.approx([whole.size, 0, whole.mean(), whole.var()], rel=U32 + 2**-38)
    assert read["weights", "2.weight"].numpy()[:, 0].tolist() == [4, 4]


def test_the_same_run_gives_the_same_bits(tmp_path: Path) -> None:
    probe = {"values": ["output"], "modules": ["0"], "dims": ["batch", "unit"]}
    probe["transforms"] = [{"kind": "accumulate", "what": "covariance", "dims": ["batch"]}]  # type: ignore[assignment]  # nested plain data
    first, second = (record(tmp_path / name, train, p=probe)["p", "0"].bits() for name in "ab")
    assert first.shape == (2, 6, 3)
    assert (first == second).all()


def test_a_step_whose_body_raised_is_not_stored(tmp_path: Path) -> None:
    def loop(run: Any, net: nn.Module) -> None:
        with run.epoch(0):
            for step in range(3):
                try:
                    with run.step():
                        net(torch.full((2, 4), float(step)))
                        assert step != 1
                except AssertionError:
                    pass

    read = record(tmp_path / "run", loop, p={"hook": "forward", "modules": ["0"], "transforms": [ACCUMULATE]})
    count, *_, largest = read["p", "0"].numpy()[0]
    assert count == 12
    assert read["p", "0"].steps.tolist() == [2]
    assert largest == model()[0](torch.stack([torch.zeros(4), torch.full((4,), 2.0)])).max().item()  # type: ignore[index]  # a Sequential, typed as a Module


def test_an_evaluation_within_a_step_does_not_commit_captures_of_the_step(tmp_path: Path) -> None:
    def loop(run: Any, net: nn.Module) -> None:
        with run.epoch(0):
            for step in range(2):
                try:
                    with run.step():
                        net(torch.ones(2, 4))
                        with run.phase("eval"), torch.no_grad():
                            net(torch.ones(3, 4))
                        assert step
                except AssertionError:
                    pass

    probe = {"hook": "forward", "modules": ["0"], "when": {"phases": ["train", "eval"]}, "transforms": [ACCUMULATE]}
    read = record(tmp_path / "run", loop, p=probe)
    assert read.sel(phase="train")["p", "0"].numpy()[0][0] == 2 * 3
    assert read.sel(phase="eval")["p", "0"].numpy()[0][0] == 2 * 9


def test_a_value_that_changes_its_shape_is_left_out_and_the_summary_gives_the_reason(tmp_path: Path) -> None:
    net = nn.Identity()
    probe = {"hook": "forward", "modules": [""], "transforms": [{"kind": "accumulate", "dims": [0]}]}
    spec = {"version": 1, "probes": {"p": probe, "all": {"hook": "forward", "modules": [""]}}}
    why = r"`p`: .* could not be taken once: .*changed its shape within the epoch, from \(6, 2\) to \(6, 3\)"
    run = probes.attach(net, spec, out=tmp_path / "run")
    with run.__enter__().epoch(0):
        for width in (2, 3, 2):
            with run.step():
                net(torch.ones(4, width))
    with pytest.raises(RunError, match=why):
        run.close()
    read = probes.open(tmp_path / "run")
    assert len(read["all", ""]) == 3
    assert read["p", ""].numpy()[0, 0].tolist() == [8.0, 8.0]


def test_values_of_an_epoch_that_reached_its_limit_are_not_in_the_result_of_the_next_epoch(tmp_path: Path) -> None:
    net = nn.Identity()
    probe = {"hook": "forward", "modules": [""]}
    sums = {**probe, "transforms": [ACCUMULATE]}
    spec = {"version": 1, "probes": {"sums": sums, "all": {**probe, "when": {"epochs": {"at": [0]}}}}, "limits": {"bytes_per_epoch": 60}}
    with probes.attach(net, spec, out=tmp_path / "run") as run:
        for epoch in run.epochs(2):
            for _ in run.steps([0, 1, 2]):
                net(torch.full((4, 2), float(epoch)))
    (found,) = probes.open(tmp_path / "run")["sums", ""]
    assert found.clock.epoch == 1
    assert found.value.tolist() == [3 * 4 * 2, 0, 1, 0, 1, 1]
