"""The run directory, and the ranks of a launch that share it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import probes
from probes.errors import MissingExtra, StorageError
from probes.record_options import RecordOptions
from probes.run_directory.create import claim, new_run_id
from probes.run_directory.launch.launcher import launcher
from tests.warm import programs

PROGRAM = """
import sys
import torch
from torch import nn
import probes

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
spec = {"version": 1, "name": "r", "probes": {"p": {"modules": ["0"], "values": ["output"]}}}
with probes.attach(model, spec, out=sys.argv[1], resume="resume" in sys.argv) as run:
    for epoch in run.epochs(int(sys.argv[2])):
        for x in run.steps([torch.ones(3, 4)] * 3):
            model(x)
"""


def launch(out: Path, epochs: int, *more: str, world: int = 2, launch_id: str = "job-1") -> list[subprocess.CompletedProcess[str]]:
    about = {**os.environ, "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": launch_id}
    with ThreadPoolExecutor(world) as pool:
        ranks = [
            pool.submit(programs.run, "-c", PROGRAM, out, str(epochs), *more, env={**about, "RANK": str(rank)}) for rank in range(world)
        ]
        return [rank.result() for rank in ranks]


def test_ranks_share_a_directory_and_write_separate_files(tmp_path: Path) -> None:
    out = tmp_path / "r"
    assert [rank.returncode for rank in launch(out, 2)] == [0, 0]
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".diff") == [
        *(f"epoch-000{epoch}.rank-000{rank}.h5" for epoch in (0, 1) for rank in (0, 1)),
        "launch.json",
        "ledger.rank-0000.jsonl",
        "ledger.rank-0001.jsonl",
        "run.json",
        "run.rank-0001.json",
        "spec.yaml",
    ]
    found = probes.open(out)
    assert found["p", "0"].clocks["rank"].tolist().count(1) == 6
    assert probes.verify(out).ok
    assert [rank.returncode for rank in launch(out, 3, "resume")] == [0, 0]
    assert (out / "epoch-0002.a2.rank-0001.h5").exists()
    assert (out / "run.a2.rank-0001.json").exists()
    assert probes.open(out).state == {0: "complete", 1: "complete", 2: "complete"}
    assert probes.verify(out).ok


def test_ranks_of_another_launch_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "r"
    launch(out, 1)
    for rank in launch(out, 1, launch_id="job-2"):
        assert rank.returncode == 1
        assert "is not empty" in rank.stderr or "is in use" in rank.stderr


def test_the_ranks_of_a_launch_agree_on_the_run_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-1")
    first = new_run_id(launcher(2).job)
    assert first == new_run_id(launcher(2).job)
    assert first.startswith("launch-")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert new_run_id(launcher(2).job) not in (first, "")
    assert new_run_id(launcher(2).job) == new_run_id(launcher(2).job)
    assert new_run_id() != new_run_id()


def test_a_directory_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(
        StorageError, match=r'is not empty .it holds "notes.txt".; files are never overwritten: choose another .*, or delete this one$'
    ):
        claim(tmp_path, "r")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_instead_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("")
    with pytest.raises(StorageError, match="cannot be created"):
        claim(tmp_path / "r", "r")


def test_a_compression_with_a_missing_package_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setattr("probes.record_options.PACKAGES", {"zstd": "a_package_that_is_not_there"})
    spec = {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}, "sinks": {"c": {"kind": "hdf5", "compression": "zstd"}}}
    with pytest.raises(MissingExtra, match=r"pip install 'torch-probes\[zstd\]'"):
        probes.attach(nn.Linear(1, 1), spec, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    RecordOptions(compression="gzip").require_packages()


def test_the_time_that_hooks_waited_is_recorded(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with (
        probes.attach(model, {"version": 1, "probes": {"p": {"modules": [""], "values": ["output"]}}}, out=tmp_path / "r") as run,
        run.epoch(0),
    ):
        for x in run.steps([torch.ones(1, 2)] * 3):
            model(x)
    from probes.capture_file.read import SealedFile

    waited = json.loads(json.dumps(SealedFile(tmp_path / "r" / "epoch-0000.h5").document("closing")))["waited"]
    assert set(waited) == {"journal_seconds", "sealer_seconds"}
    assert 0 < waited["journal_seconds"] < 60
