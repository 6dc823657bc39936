"""Runs with comparisons and samples verify, are diffed, and are not resumed where a value is in no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import probes
from probes.errors import UsageError
from tests.hooks.comparison.test_comparing import BATCHES, OUTPUTS, WEIGHTS, Net, against

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "words",
    "probes": {
        "moved": {**WEIGHTS, **against({"step": "previous"}, "difference")},
        "alike": {**OUTPUTS, **against({"series": "alike", "target": "*"}, "cka")},
        "strongest": {**OUTPUTS, "transforms": [{"kind": "accumulate", "what": "topk", "size": 2}]},
        "large": {**OUTPUTS, "where": {"series": "large", "of": {"kind": "norm"}, "above": 0}},
    },
}


def recorded(out: Path, rate: float, spec: dict[str, Any] = SPEC, **options: Any) -> Any:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    with probes.attach(model, spec, out=out, **options) as run, run.epoch(run.next_epoch):
        for batch in run.steps(BATCHES):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    return probes.open(out)


def test_a_run_with_every_new_key_verifies_and_is_compared_series_by_series(tmp_path: Path) -> None:
    found = recorded(tmp_path / "one", 0.1)
    recorded(tmp_path / "same", 0.1)
    recorded(tmp_path / "other", 0.2)
    assert probes.verify(tmp_path / "one").ok
    assert probes.diff(tmp_path / "one", tmp_path / "same").same
    difference = probes.diff(tmp_path / "one", tmp_path / "other")
    assert not difference.same
    assert found["alike", "first", "output.vs.second"].attrs["against"] == "series alike/second:output"
    assert found["moved", "first.weight"].attrs["against"] == "step previous"
    assert found["strongest", "first"].xarray().dims[-3:] == ("stat", "top", "dim_0")


def test_a_comparison_with_the_first_step_is_not_resumed_and_one_with_the_previous_step_is(tmp_path: Path) -> None:
    def moved(step: str) -> dict[str, Any]:
        return {"version": 1, "name": "s", "probes": {"moved": {**WEIGHTS, **against({"step": step}, "relative_error")}}}

    for step in ("first", "previous"):
        recorded(tmp_path / step, 0.1, moved(step))
    with pytest.raises(UsageError, match="probe `moved` compares with the first step of the run, whose value is not stored"):
        recorded(tmp_path / "first", 0.1, moved("first"), resume=True)
    assert recorded(tmp_path / "previous", 0.1, moved("previous"), resume=True).epochs == [0, 1]
