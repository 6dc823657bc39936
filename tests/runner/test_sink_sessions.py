"""Sinks in real runs: they get what the file holds, and their failures stay their own."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.clock import SeriesKey
from probes.component import SinkContext
from probes.errors import PlanError, RunError
from probes.runner.sink_sessions import SinkSessions, labels, numbers
from probes.signature import Coord, Descriptor
from probes.sinks.jsonl import Jsonl

STATS = [{"kind": "stats"}]
HISTOGRAM = {"kind": "histogram", "bins": 100, "range": [0, 1]}
BOTH = {"captures": {"kind": "hdf5"}, "log": {"kind": "jsonl"}}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def train(run: Any, net: nn.Module, epochs: int = 2) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in run.epochs(epochs):
        for x in run.steps([torch.full((5, 4), float(step)) for step in range(3)]):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()


def record(out: Path, sinks: dict[str, Any], settings: dict[str, Any] | None = None, **found: Any) -> Any:
    net = model()
    with probes.attach(net, {"version": 1, "name": "t", "sinks": sinks, "probes": found, **(settings or {})}, out=out) as run:
        train(run, net)
    return run


def lines(out: Path, name: str = "log.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text("utf-8").splitlines()]


def test_the_log_holds_the_numbers_of_the_file(tmp_path: Path) -> None:
    out = tmp_path / "run"
    record(out, BOTH, size={"values": ["output", "grad_output"], "modules": ["0", "2"], "transforms": STATS})
    found = lines(out)
    assert [(line["epoch"], line["step"], line["global_step"]) for line in found] == [(e, s, 3 * e + s) for e in range(2) for s in range(3)]
    for series in probes.open(out).series:
        for line, values in zip(found, series.numpy(), strict=True):
            for name, value in zip(series.signature.coords["stat"], values, strict=True):
                assert line["values"][f"size/{series.key.target}/{series.key.leaf}/{name}"] == value


def test_a_probe_goes_to_the_sinks_it_names(tmp_path: Path) -> None:
    out = tmp_path / "run"
    whole = {"hook": "forward", "modules": ["0"], "sinks": ["captures"]}
    run = record(out, BOTH, whole=whole, size={"hook": "forward", "modules": ["2"], "transforms": STATS, "sinks": ["log"]})
    assert {series.key.probe for series in probes.open(out).series} == {"whole"}
    assert {name.partition("/")[0] for line in lines(out) for name in line["values"]} == {"size"}
    assert [row.captures for row in run.summary().rows] == [6, 6]


def test_a_run_without_a_record_still_verifies(tmp_path: Path) -> None:
    out = tmp_path / "run"
    record(out, {"log": {"kind": "jsonl", "path": "metrics.jsonl"}}, size={"hook": "forward", "modules": ["2"], "transforms": STATS})
    assert len(lines(out, "metrics.jsonl")) == 6
    assert probes.verify(out).ok
    assert probes.open(out).series == []


def test_several_sinks_get_the_same_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    sinks = {"log": {"kind": "jsonl"}, "other": {"kind": "jsonl", "path": "other.jsonl"}, "screen": {"kind": "console"}}
    record(out, sinks, size={"hook": "forward", "modules": ["2"], "transforms": [{"kind": "norm"}]})
    assert lines(out) == lines(out, "other.jsonl")
    assert capsys.readouterr().err.count("size/2:output") == 6


def test_a_step_whose_body_raised_has_no_line(tmp_path: Path) -> None:
    net, out = model(), tmp_path / "run"
    spec = {"version": 1, "sinks": BOTH, "probes": {"size": {"hook": "forward", "modules": ["0"], "transforms": STATS}}}
    with probes.attach(net, spec, out=out) as run, run.epoch(0):
        for step in range(3):
            try:
                with run.step():
                    net(torch.ones(2, 4))
                    assert step != 1
            except AssertionError:
                pass
            if step == 0:
                assert len(lines(out)) == 1, "a line is in the file once its step is committed"
    assert [line["step"] for line in lines(out)] == [0, 2]


def test_a_sink_that_fails_is_disabled_and_the_captures_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Jsonl.open

    def full(self: Jsonl, context: SinkContext) -> Any:
        session: Any = plain(self, context)
        os.close(session.handle)
        session.handle = os.open("/dev/full", os.O_WRONLY)
        return session

    monkeypatch.setattr(Jsonl, "open", full)
    run = record(tmp_path / "run", BOTH, size={"hook": "forward", "modules": ["0"], "transforms": STATS})
    assert "sink `log` failed and was disabled" in str(run.summary())
    assert len(probes.open(tmp_path / "run")["size", "0"]) == 6
    with pytest.raises(RunError, match="sink `log` failed and was disabled"):
        record(tmp_path / "strict", BOTH, {"on_error": "raise"}, size={"hook": "forward", "modules": ["0"], "transforms": STATS})


def test_a_sink_whose_error_names_a_file_that_is_not_utf_8_is_disabled_and_the_run_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(self: Jsonl, context: SinkContext) -> Any:
        raise OSError("cannot open caf\udce9.jsonl")

    monkeypatch.setattr(Jsonl, "open", absent)
    run = record(tmp_path / "run", BOTH, size={"hook": "forward", "modules": ["0"], "transforms": STATS})
    assert r"caf\udce9.jsonl" in str(run.summary())
    assert probes.verify(tmp_path / "run").ok


def test_a_capture_that_a_sink_cannot_read_disables_that_sink_and_the_captures_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(payload: bytes, dtype: torch.dtype) -> Any:
        if len(payload) == 10 * 8:
            raise RuntimeError("no conversion")
        return numbers(payload, dtype)

    monkeypatch.setattr("probes.runner.sink_sessions.numbers", unreadable)
    sinks = {**BOTH, "other": {"kind": "jsonl", "path": "other.jsonl"}}
    found = {
        "stats": {"hook": "forward", "modules": ["0"], "transforms": STATS, "sinks": ["captures", "log"]},
        "norm": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "norm"}], "sinks": ["captures", "other"]},
    }
    run = record(tmp_path / "run", sinks, **found)
    said = "sink `log` failed and was disabled: `stats/0:output` has dtype `float64`, whose elements cannot be read as numbers"
    assert said in str(run.summary())
    assert [len(probes.open(tmp_path / "run")[name, "0"]) for name in found] == [6, 6]
    assert len(lines(tmp_path / "run", "other.jsonl")) == 6


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ({"hook": "forward", "modules": ["0"]}, r"no transform makes `output` of `0` small"),
        ({"hook": "forward", "modules": [""]}, r"no transform makes `output` of the model small"),
        ({"values": ["loop.loss"]}, None),
        ({"tensors": ["0.weight"], "hook": "tensor"}, None),
        (
            {"hook": "forward", "modules": ["0"], "transforms": [HISTOGRAM]},
            "`output` of `0` has 103",
        ),
    ],
)
def test_a_capture_above_the_limit_of_a_sink_is_refused_before_the_run(tmp_path: Path, probe: dict[str, Any], said: str | None) -> None:
    spec = {"version": 1, "sinks": BOTH, "probes": {"p": probe}}
    if said is None:
        assert probes.resolve(spec, model()).bindings
        return
    with pytest.raises(PlanError, match=rf"sink `log` takes at most 64 elements, and {said}") as caught:
        probes.resolve(spec, model())
    assert "`sinks: [captures]`" in caught.value.problems[0].hint


def test_a_capture_that_turns_out_too_large_disables_the_sink_and_not_the_capture(tmp_path: Path) -> None:
    sinks = {"captures": {"kind": "hdf5"}, "log": {"kind": "jsonl", "max_elements": 4}}
    run = record(tmp_path / "run", sinks, p={"hook": "forward", "modules": ["0"], "transforms": [{"kind": "abs"}]})
    assert "has 15 elements, and the sink takes at most 4" in str(run.summary())
    assert len(probes.open(tmp_path / "run")["p", "0"]) == 6


def test_sinks_are_not_part_of_the_identity_of_a_spec() -> None:
    def identity(**settings: Any) -> str:
        probe = {"hook": "forward", "modules": ["0"], "transforms": STATS, **settings.pop("probe", {})}
        return probes.load({"version": 1, "name": "t", "probes": {"p": probe}, **settings}).identity_hash

    assert identity() == identity(sinks=BOTH) == identity(sinks=BOTH, probe={"sinks": ["log", "captures"]})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(0.5), [0.5]),
        (torch.tensor([1.0, math.nan, -math.inf]), [1.0, "nan", "-inf"]),
        (torch.tensor([1.5], dtype=torch.bfloat16), [1.5]),
        (torch.tensor([2.0]).to(torch.float8_e4m3fn), [2.0]),
        (torch.tensor([True, False]), [True, False]),
        (torch.tensor([2**62 + 1]), [2**62 + 1]),
        (torch.tensor([1 + 2j]), ["(1+2j)"]),
        (torch.empty(0), []),
    ],
    ids=str,
)
def test_elements_become_python_numbers_without_loss(value: Tensor, expected: list[Any]) -> None:
    payload = value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    assert numbers(payload, value.dtype) == expected


def test_elements_are_labelled_by_names_or_indices() -> None:
    def labelled(shape: tuple[int, ...], dims: tuple[str, ...] | None, coords: dict[str, Coord]) -> list[str]:
        return list(labels(Descriptor(SeriesKey("p", "fc", "output", "train"), "float32", shape, dims, coords, {})))

    assert labelled((), None, {}) == [""]
    assert labelled((2,), ("stat",), {"stat": ("mean", "std")}) == ["mean", "std"]
    assert labelled((2, 2), ("unit", "q"), {"q": (0.5, 0.9)}) == ["0/0.5", "0/0.9", "1/0.5", "1/0.9"]


def test_a_replaced_sink_session_gets_every_reading(tmp_path: Path) -> None:
    taken: list[Any] = []

    class Session:
        def step(self, readings: Any) -> None:
            taken.extend(readings)

        def close(self) -> None:
            taken.append("closed")

    opened: Callable[..., Any] = lambda self, context: Session()  # noqa: E731  # so that its type is checked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Jsonl, "open", opened)
        record(tmp_path / "run", {"log": {"kind": "jsonl"}}, p={"hook": "forward", "modules": ["0"], "transforms": [{"kind": "norm"}]})
    assert [one.clock.global_step for one in taken[:-1]] == list(range(6))
    assert taken[-1] == "closed"


def test_the_file_of_a_sink_has_the_rank_in_its_name(tmp_path: Path) -> None:
    spec = {"version": 1, "sinks": BOTH, "probes": {"p": {"hook": "forward", "modules": ["0"], "transforms": STATS}}}
    sessions = SinkSessions(probes.resolve(spec, model()), tmp_path, 3, print)
    sessions.over(cast("Any", SimpleNamespace(add=None)), 0, {})
    sessions.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log.rank-0003.jsonl"]
