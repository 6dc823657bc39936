"""Code that is run without a name in `sys.modules` belongs to the identity of a run, too."""

from __future__ import annotations

import _io
import importlib.util
import io
import json
import runpy
from pathlib import Path
from types import ModuleType

import h5py
import pytest
import torch

import probes
from probes.provenance.code_files import CodeReads

SPEC = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["0"]}}}


def loaded(path: Path) -> ModuleType:
    """A module of a file, as programs load plug-ins and configurations: it gets no name in `sys.modules`."""
    spec = importlib.util.spec_from_file_location("plugin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_that_loaders_and_runpy_run_are_recorded_from_their_caches_too(tmp_path: Path) -> None:
    plugin, run = tmp_path / "plugin.py", tmp_path / "run.py"
    plugin.write_text("A = 1\n")
    run.write_text("B = 2\n")
    reads, before = CodeReads(), _io.open_code
    reads.add(reads)
    try:
        assert (loaded(plugin).A, runpy.run_path(str(run))["B"]) == (1, 2)
        assert reads.files == {str(plugin), str(run)}
        reads.files.clear()
        loaded(plugin)  # from the cache that the first time has written
        assert reads.files == {str(plugin)}
        with pytest.raises(FileNotFoundError):
            io.open_code(str(tmp_path / "nowhere.py")).close()
    finally:
        reads.remove(reads)
    assert (_io.open_code, io.open_code) == (before, before)
    reads.files.clear()
    loaded(plugin)
    assert not reads.files


def test_a_plugin_of_the_program_is_recorded_with_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plugin = tmp_path / "plugin.py"
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    digests = []
    for value in (1, 2):
        plugin.write_text(f"SCALE = {value}.0  # of run {value}\n")
        with probes.attach(model, SPEC, out=tmp_path / f"run-{value}") as run, run.epoch(0):
            model(torch.ones(1, 2) * loaded(plugin).SCALE)
        with h5py.File(tmp_path / f"run-{value}" / "epoch-0000.h5") as file:
            digests.append(json.loads(file["closing"][()])["imported"].get("plugin.py") or "")
        if not digests[-1]:
            modules = json.loads((tmp_path / f"run-{value}" / "run.json").read_text())["code"]["modules"]
            digests[-1] = next(one["sha256"] for one in modules if one["name"] == "plugin.py")
    assert len(set(digests)) == 2
    assert "code.modules.plugin.py" in {one.place for one in probes.diff(tmp_path / "run-1", tmp_path / "run-2").origins}
