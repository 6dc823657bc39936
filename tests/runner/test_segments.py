"""Epochs that are cut into several files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.digest import blake3_hex, canonical
from probes.errors import SpecError, StorageError
from probes.journal.writer import Journal
from probes.run_directory.recover import recover
from probes.run_directory.resume import read_attempts
from tests.runner.test_resume import SPEC, killed, net, train

CUT: dict[str, Any] = {**SPEC, "sinks": {"c": {"kind": "hdf5", "seal": {"steps": 4}}}}

EACH: dict[str, Any] = {**SPEC, "sinks": {"c": {"kind": "hdf5", "seal": {"steps": 1}}}}


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("epoch-*"))


def test_an_epoch_is_cut_after_so_many_steps(tmp_path: Path) -> None:
    model = net()
    train(probes.attach(model, CUT, out=tmp_path / "r"), model, 2)
    assert names(tmp_path / "r") == [f"epoch-000{epoch}.s000{segment}.h5" for epoch in (0, 1) for segment in (1, 2)]
    verdict = probes.verify(tmp_path / "r")
    assert (verdict.ok, verdict.findings) == (True, ())
    assert probes.open(tmp_path / "r").state == {0: "complete", 1: "complete"}


def test_joined_segments_read_as_one_file(tmp_path: Path) -> None:
    for name, spec in (("whole", SPEC), ("cut", CUT)):
        model = net()
        train(probes.attach(model, spec, out=tmp_path / name), model, 2)
    whole, cut = probes.open(tmp_path / "whole"), probes.open(tmp_path / "cut")
    for leaf in ("output", "grad_output"):
        assert (whole["p", "0", leaf].numpy() == cut["p", "0", leaf].numpy()).all()
        assert (whole["p", "0", leaf].clocks == cut["p", "0", leaf].clocks).all()
    assert probes.diff(tmp_path / "whole", tmp_path / "cut").same


def test_only_the_last_segment_ends_the_epoch(tmp_path: Path) -> None:
    killed(tmp_path / "r", 0, 5, CUT)
    assert probes.open(tmp_path / "r").state == {0: "unsealed"}
    assert "epoch-0000.s0002.h5" in [finding.file for finding in recover(tmp_path / "r").findings]
    assert probes.open(tmp_path / "r").state == {0: "incomplete"}
    assert read_attempts(tmp_path / "r").next_epoch == 0


def test_a_run_that_was_killed_between_two_segments_is_reported_as_incomplete(tmp_path: Path) -> None:
    killed(tmp_path / "r", 0, 5, CUT)
    (tmp_path / "r" / "epoch-0000.s0002.journal").unlink()
    assert not recover(tmp_path / "r").damaged
    assert probes.open(tmp_path / "r").state == {0: "incomplete"}
    findings = probes.verify(tmp_path / "r").findings
    assert [(one.code, one.file) for one in findings] == [("incomplete", "epoch-0000.s0001.h5")]
    assert "its next segment is missing" in findings[0].message


def test_a_step_of_another_phase_within_a_step_does_not_cut_it(tmp_path: Path) -> None:
    spec = {**EACH, "probes": {"p": {"modules": ["0"], "values": ["output"], "when": {"phases": ["train", "eval"]}}}}
    model = net()
    with probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0):
        for x in run.steps([torch.ones(3, 4), torch.zeros(3, 4)]):
            model(x).sum().backward()
            with torch.no_grad():
                model.eval()(x + 1)
            model.train()(x + 2).sum().backward()
    found = probes.open(tmp_path / "r")
    assert [len(found.sel(phase=phase)["p", "0"]) for phase in ("train", "eval")] == [4, 2]
    assert probes.verify(tmp_path / "r").ok


def test_a_late_gradient_goes_into_the_next_segment_with_its_own_clock(tmp_path: Path) -> None:
    spec = {**EACH, "probes": {"p": {"modules": ["0"], "values": ["grad_output"]}}}
    model = net()
    kept: list[torch.Tensor] = []
    with probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0):
        for x in run.steps([torch.ones(3, 4), torch.zeros(3, 4), torch.ones(3, 4)]):
            kept.append(model(x).sum())
            if len(kept) > 1:
                kept[-2].backward()
        kept[-1].backward()
    assert probes.open(tmp_path / "r")["p", "0"].clocks["step"].tolist() == [0, 1, 2]
    assert probes.verify(tmp_path / "r").ok


def test_the_root_of_an_epoch_covers_those_of_its_segments(tmp_path: Path) -> None:
    model = net()
    train(probes.attach(model, CUT, out=tmp_path / "r"), model, 1)
    roots = [one.captures_root for one in probes.verify(tmp_path / "r").files]
    assert probes.open(tmp_path / "r").captures_roots == {(0, 0): blake3_hex(canonical({"segments": roots}))}


def test_the_sealer_gets_a_segment_while_the_epoch_continues(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, CUT, out=tmp_path / "r") as run, run.epoch(0):
        for index, x in enumerate(run.steps([torch.full((3, 4), float(i)) for i in range(6)])):
            model(x).sum().backward()
            if index == 5:
                run.recording.sealed += run.recording.sealer.drain()
                assert [one.file for one in run.recording.sealed] == ["epoch-0000.s0001.h5"]
                assert probes.open(tmp_path / "r").state == {0: "unsealed"}


@pytest.mark.parametrize("steps", [0, -1])
def test_a_segment_has_at_least_one_step(tmp_path: Path, steps: int) -> None:
    with pytest.raises(SpecError, match="steps"):
        probes.attach(nn.Linear(1, 1), {**SPEC, "sinks": {"c": {"kind": "hdf5", "seal": {"steps": steps}}}}, out=tmp_path / "r")


def test_a_segment_that_cannot_be_begun_leaves_no_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create, model = Journal.create, net()

    def refuse(path: Path, *args: Any, **options: Any) -> Journal:
        if ".s0003" in path.name:
            raise StorageError("cannot create the journal: Input/output error")
        return create(path, *args, **options)

    monkeypatch.setattr(Journal, "create", refuse)
    train(probes.attach(model, EACH, out=tmp_path / "r"), model, 1)
    assert names(tmp_path / "r") == ["epoch-0000.s0001.h5", "epoch-0000.s0002.h5"]
    assert {finding.code for finding in probes.verify(tmp_path / "r").findings} == {"incomplete"}


def test_a_gradient_that_comes_late_is_in_the_segment_that_is_cut_after_it(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    spec = {
        "version": 1,
        "sinks": {"c": {"kind": "hdf5", "seal": {"steps": 2}}},
        "probes": {"p": {"modules": ["0"], "values": ["output", "grad_output"]}},
    }
    with probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0):
        with run.step():
            y = model(torch.ones(1, 2))
        with suppress(ValueError), run.step():
            model(torch.zeros(1, 2))
            y.sum().backward()
            raise ValueError
        with run.step():
            model(torch.full((1, 2), 3.0)).sum().backward()
    found = probes.open(tmp_path / "r")
    assert found["p", "0", "grad_output"].clocks["step"].tolist()[0] == 0
    assert len(found["p", "0", "grad_output"]) == 2
    assert len(found["p", "0", "output"]) == 2
    assert not list((tmp_path / "r").glob("*.journal"))
