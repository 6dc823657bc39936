"""Rules in real runs: what they find is what a plain loop over the stored numbers finds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.commands.ls import ls
from probes.errors import PlanError, RunError, Stopped
from probes.spec import load_spec
from tests.commands.conftest import Invoke, Said
from tests.commands.conftest import invoke as invoke  # the fixture

STATS = {"hook": "forward", "modules": ["**"], "transforms": [{"kind": "stats"}]}


class Given(nn.Module):
    """Returns what it gets, so that a test writes the numbers that a rule sees."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1


class Tenfold(nn.Module):
    """Returns ten times what it gets."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 10


def net() -> nn.Module:
    return nn.Sequential(Given(), Given())


def spec(rule: dict[str, Any], **probe: Any) -> dict[str, Any]:
    made = {"hook": "forward", "modules": ["0"], **probe}
    return {"version": 1, "name": "t", "probes": {"acts": made}, "rules": {"r": {"probe": "acts", **rule}}}


def run_over(out: Path, chosen: dict[str, Any], epochs: list[list[Any]], accumulate: int = 1) -> Any:
    """A run whose model gets these values, step by step."""
    model = net()
    with probes.attach(model, chosen, out=out) as run:
        for epoch in run.epochs(len(epochs)):
            for value in run.steps(epochs[epoch], accumulate=accumulate):
                model(torch.as_tensor(value, dtype=torch.float64))
    return run


def by_hand(series: Any, broken: Any, steps: int) -> dict[int, tuple[tuple[int, int], int, list[float]]]:
    """For each element that breaks a bound in `steps` captures in a row: where the first row began, the longest, and what was in them."""
    found = {}
    places = list(zip(series.clocks["epoch"].tolist(), series.clocks["step"].tolist(), strict=True))
    for at, column in enumerate(series.numpy().reshape(len(series), -1).T.tolist()):
        rows = [[*row] for out, row in groupby(zip(places, column, strict=True), lambda one: broken(one[1])) if out]
        long = [row for row in rows if len(row) >= steps]
        if long:
            found[at] = (long[0][0][0], max(map(len, long)), [value for row in long for _, value in row])
    return found


BOUNDS: dict[str, tuple[dict[str, float], Callable[[float], bool]]] = {
    "above": ({"above": 1}, lambda x: not x <= 1),
    "at-least": ({"at_least": 1}, lambda x: not x < 1),
    "below": ({"below": -1}, lambda x: not x >= -1),
    "at-most": ({"at_most": 0}, lambda x: not x > 0),
    "outside": ({"above": 1, "below": -1}, lambda x: not -1 <= x <= 1),
}


def test_rules_find_the_same_as_a_loop_over_the_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    values = torch.randint(-2, 3, (2, 40, 5)).double()
    values[0, 4, 2] = math.nan
    chosen = spec({})
    chosen["rules"] = {f"{name}-{n}": {"probe": "acts", "for": n, **bounds} for name, (bounds, _) in BOUNDS.items() for n in (1, 2, 3)}
    run = run_over(tmp_path / "run", chosen, [list(epoch) for epoch in values])
    read = probes.open(tmp_path / "run")
    assert [one.rule for one in read.verdicts] == [*chosen["rules"]], "each of them is broken by one series"
    for verdict in read.verdicts:
        bounds, broken = BOUNDS[verdict.rule[:-2]]
        wanted = by_hand(read["acts", "0"], broken, int(verdict.rule[-1]))
        assert (verdict.series, verdict.broken, verdict.judged) == ("acts/0:output", len(wanted), 5)
        assert {int(one.label): ((one.epoch, one.step), one.steps) for one in verdict.numbers} == {
            at: row[:2] for at, row in wanted.items()
        }
        high, low = bounds.get("above", bounds.get("at_least", math.inf)), bounds.get("below", bounds.get("at_most", -math.inf))
        for one in verdict.numbers:
            out = wanted[int(one.label)][2]
            assert one.global_step == 40 * one.epoch + one.step
            assert math.isnan(one.worst) == any(map(math.isnan, out))
            assert math.isnan(one.worst) or max(one.worst - high, low - one.worst) == max(max(x - high, low - x) for x in out)
    assert repr(run.summary().verdicts) == repr(read.verdicts)


def test_a_step_in_which_a_part_is_within_the_bounds_ends_a_row(tmp_path: Path) -> None:
    values = [[2.0, 0.0, 2.0, 0.0, 2.0, 2.0, 2.0, 2.0]]  # steps of two calls
    run_over(tmp_path / "run", spec({"above": 1, "for": 2}), values, accumulate=2)
    (verdict,) = probes.open(tmp_path / "run").verdicts
    assert (verdict.since.step, verdict.since.steps, verdict.since.lasting) == (2, 2, True)


def test_a_ratio_of_two_numbers_is_checked_if_the_second_is_not_zero(tmp_path: Path) -> None:
    values = [[torch.zeros(0), torch.zeros(4), torch.tensor([0.0, 1, 2, 3]), torch.zeros(4), torch.zeros(2)]]
    rule = {"number": "zeros", "divided_by": "count", "at_least": 1, "for": 2}
    run_over(tmp_path / "run", spec(rule, transforms=[{"kind": "stats"}]), values)
    (verdict,) = probes.open(tmp_path / "run").verdicts
    assert (verdict.since.label, verdict.since.step, verdict.worst, verdict.judged) == ("zeros", 3, 1.0, 1)


def test_targets_and_leaves_choose_series_and_the_worst_is_first(tmp_path: Path) -> None:
    model = nn.Sequential(Given(), nn.Sequential(Given(), Tenfold()))
    wanted = {"probe": "acts", "targets": ["1.*"], "leaves": ["output"], "number": "norm", "above": 1}
    chosen = {
        "version": 1,
        "name": "t",
        "probes": {"acts": {"modules": ["**"], "values": ["input", "output"], "transforms": [{"kind": "norm"}]}},
        "rules": {"r": wanted},
    }
    with torch.no_grad(), probes.attach(model, chosen, out=tmp_path / "run") as run, run.epoch(0), run.step(), run.phase("train"):
        model(torch.full((4,), 2.0))
    found = probes.open(tmp_path / "run").verdicts
    assert [one.target for one in found] == ["1.1", "1.0"]
    assert {one.leaf for one in found} == {"output"}
    assert [one.excess for one in found] == sorted([one.worst - 1 for one in found], reverse=True)


def test_a_rule_checks_only_captures_that_the_condition_of_its_probe_keeps(tmp_path: Path) -> None:
    sizes = [1.0, 3.0, 5.0, 2.0, 7.0]
    chosen = spec({"at_least": 0}, where={"of": {"kind": "norm"}, "above": 2.5}, transforms=[{"kind": "norm"}], expect={"fires": "some"})
    run = run_over(tmp_path / "run", chosen, [[[0.0, size] for size in sizes]])
    (verdict,) = probes.open(tmp_path / "run").verdicts
    (found,) = verdict.numbers
    assert probes.open(tmp_path / "run")["acts", "0"].numpy().tolist() == [3.0, 5.0, 7.0]
    assert (found.step, found.worst, verdict.judged) == (1, 7.0, 1)
    assert run.accounts[0][0].skipped["filtered"] == 2


def test_a_dropped_step_is_not_checked_by_rules(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, spec({"above": 1}), out=tmp_path / "run") as run, run.epoch(0):
        for value in (0.0, 5.0, 0.5):
            try:
                with run.step():
                    model(torch.tensor(value))
                    if value == 5:
                        raise KeyError
            except KeyError:
                continue
    assert probes.open(tmp_path / "run").verdicts == []


def test_stop_ends_the_training_after_the_step_that_broke_the_rule(tmp_path: Path) -> None:
    seen, model = [], net()

    def train() -> None:
        with probes.attach(model, spec({"above": 1, "for": 2, "then": "stop"}), out=tmp_path / "run") as run, run.epoch(0):
            for value in run.steps([0.0, 2.0, 3.0, 4.0, 5.0]):
                seen.append(value)
                model(torch.tensor(value))

    with pytest.raises(Stopped, match=r"rule `r` \(above 1 in 2 steps in a row\) is broken: acts/0:output was out"):
        train()
    assert seen == [0.0, 2.0, 3.0]
    read = probes.open(tmp_path / "run")
    assert read["acts", "0"].numpy().tolist() == [0, 2, 3]
    assert read.state == {0: "incomplete"}
    assert read.verdicts[0].then == "stop"
    assert probes.verify(tmp_path / "run").ok


def test_fail_raises_after_the_end_of_the_training(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"error\[rule-broken\]: rule `r` \(above 1\): acts/0:output was out of .* on, worst 7"):
        run_over(tmp_path / "run", spec({"above": 1, "then": "fail"}), [[0.0, 2.0, 7.0, 0.0]])
    read = probes.open(tmp_path / "run")
    assert read.state == {0: "complete"}
    assert not read.verdicts[0].since.lasting


def test_a_rule_that_checks_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="rule `r` checked nothing: no capture has a target, leaf and number"):
        run_over(tmp_path / "run", spec({"above": 1, "leaves": ["grad_output"]}), [[0.0, 2.0]])
    with pytest.raises(RunError, match=r"has 65,537 elements, and rules check at most 65,536; add a transform"):
        run_over(tmp_path / "large", spec({"above": 1}), [[torch.zeros(65_537)]])


def test_a_target_that_the_probe_does_not_have_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"rule `r`: `O` matches none of the 1 targets of probe `acts`"):
        probes.attach(net(), spec({"above": 1, "targets": ["O"]}), out=tmp_path / "run")


def test_a_value_of_the_loop_and_a_result_of_an_epoch_are_checked_too(tmp_path: Path) -> None:
    chosen = {
        "version": 1,
        "name": "t",
        "probes": {
            "loss": {"values": ["loop.loss"]},
            "spread": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "accumulate"}]},
        },
        "rules": {
            "diverges": {"probe": "loss", "above": 10, "for": 2},
            "constant": {"probe": "spread", "number": "variance", "at_most": 0},
        },
    }
    model = net()
    with probes.attach(model, chosen, out=tmp_path / "run") as run:
        for _ in run.epochs(2):
            for value in run.steps([1.0, 20.0, 30.0]):
                run.log(loss=model(torch.full((3,), value if _ == 0 else 1.0)).mean())
    found = {one.rule: (one.since.epoch, one.since.step, one.worst) for one in probes.open(tmp_path / "run").verdicts}
    assert found == {"diverges": (0, 1, 30.0), "constant": (1, 2, 0.0)}


def test_a_list_of_a_run_and_its_summary_show_what_the_rules_found(tmp_path: Path, invoke: Invoke) -> None:
    run = run_over(tmp_path / "run", spec({"above": 1, "for": 2}), [[0.0, 2.0, 7.0, 0.0]])
    lines = [
        "rule r: above 1 in 2 steps in a row: 1 series",
        "  acts/0:output was out of bounds from epoch 0 step 1 on, worst 7, for at most 2 steps in a row",
    ]
    assert lines == str(run.summary()).splitlines()[3:5]
    said: Said = invoke(ls, str(tmp_path / "run"))
    assert said.out.splitlines()[1:3] == lines
    data = json.loads(invoke(ls, str(tmp_path / "run"), "--json").out)
    assert data["verdicts"] == run.summary().as_dict()["verdicts"]
    assert data["verdicts"][0]["numbers"][0] | {"worst": 7.0} == data["verdicts"][0]["numbers"][0]


def test_rules_are_not_part_of_the_identity_of_a_spec_and_leave_specs_without_them_as_they_were() -> None:
    plain = {key: value for key, value in spec({"above": 1}).items() if key != "rules"}
    with_rules, without = load_spec(spec({"above": 1})), load_spec(plain)
    assert with_rules.identity_hash == without.identity_hash
    assert "rules" in with_rules.data
    assert "rules" not in without.data
