"""Conditions on a number of another series or of the loop, in the same step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.runner.in_memory import in_memory

SIZES = [1.0, 9.0, 2.0, 8.0, 1.0, 1.0]
LARGE = [index for index, size in enumerate(SIZES) if size > 5]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) * 2)


def run_of(probes: dict[str, Any], log: str = "after", raising: int = -1) -> Any:
    with in_memory(Net(), {"version": 1, "probes": probes}) as run, run.epoch(0):
        for index, size in enumerate(SIZES):
            try:
                with run.step():
                    if log == "before":
                        run.log(loss=size)
                    run.engine.plan.trees[""].model(torch.full((3,), size))
                    if log == "after":
                        run.log(loss=size)
                    if index == raising:
                        raise KeyError
            except KeyError:
                continue
    return run


def outputs(module: str, **keys: Any) -> dict[str, Any]:
    return {"hook": "forward", "modules": [module], **keys}


@pytest.mark.parametrize(("own", "other"), [("first", "second"), ("second", "first")])
def test_a_capture_is_kept_if_a_number_of_another_probe_before_or_after_it_meets_the_condition(own: str, other: str) -> None:
    bound = 5.0 if other == "first" else 10.0
    run = run_of({"p": outputs(own, where={"series": "q", "of": {"kind": "norm", "order": "linf"}, "above": bound}), "q": outputs(other)})
    assert run.found["p", own].steps.tolist() == LARGE
    assert run.found["p", own].numpy()[:, 0].tolist() == [SIZES[index] * (1 if own == "first" else 2) for index in LARGE]
    assert len(run.found["q", other]) == 6
    assert run.account("p", own, "output")["skipped"] == {"filtered": 4}


def test_a_condition_on_another_probe_without_of_compares_its_stored_number() -> None:
    q = outputs("second", transforms=[{"kind": "norm", "order": "linf"}])
    run = run_of({"p": outputs("first", where={"series": "q", "above": 10}), "q": q})
    assert run.found["p", "first"].steps.tolist() == LARGE


@pytest.mark.parametrize("log", ["before", "after"])
def test_a_capture_is_kept_if_a_logged_value_meets_the_condition(log: str) -> None:
    run = run_of({"p": outputs("first", where={"loop": "loss", "above": 5})}, log)
    assert run.found["p", "first"].steps.tolist() == LARGE


def test_a_step_that_raised_keeps_nothing() -> None:
    run = run_of({"p": outputs("first", where={"loop": "loss", "above": 5})}, raising=1)
    assert run.found["p", "first"].numpy()[:, 0].tolist() == [8.0]


def test_deviations_are_computed_from_the_other_number() -> None:
    where = {"loop": "loss", "outside": [-3, 3], "deviations": True, "window": 2}
    probes = {"p": outputs("first", where=where)}
    with in_memory(Net(), {"version": 1, "probes": probes}) as run, run.epoch(0):
        for loss in (1.0, 1.1, 1.05, 1.06, 7.0, 4.0):
            with run.step():
                run.engine.plan.trees[""].model(torch.zeros(3))
                run.log(loss=loss)
    assert run.found["p", "first"].steps.tolist() == [4]


@pytest.mark.parametrize(
    "condition", [{"loop": "loss", "above": 8.5}, {"series": "q", "of": {"kind": "norm", "order": "linf"}, "above": 17}]
)
def test_a_trigger_on_another_number_writes_the_steps_before(condition: dict[str, Any]) -> None:
    trigger = {"kind": "threshold", "before": 1, **condition}
    run = run_of({"p": outputs("first", when={"trigger": trigger}), "q": outputs("second")})
    assert run.found["p", "first"].steps.tolist() == [0, 1]
    (event,) = run.closing["trigger"]["events"]
    place = ("", "loop.loss") if "loop" in condition else ("second", "output")
    assert (event["probe"], event["target"], event["leaf"], event["step"], event["then"]) == ("p", *place, 1, "continue")


def test_a_value_that_is_not_a_number_fails_the_condition_and_not_the_other_probe(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of({"p": outputs("first", expect={"fires": "some"}, where={"series": "q", "above": 10}), "q": outputs("second")})
    assert len(run.found["q", "second"]) == 6
    assert run.account("q", "second", "output")["skipped"] == {}
    assert "the condition needs one real number, and has float32[3]" in capsys.readouterr().err
