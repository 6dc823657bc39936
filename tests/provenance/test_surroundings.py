from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import nn

import probes
from probes.digest import blake3_hex, canonical
from probes.provenance.environment import environment
from probes.run_directory.create import started_here
from probes.run_directory.manifest import EnvironmentRecord

SPEC = {"version": 1, "probes": {"acts": {"modules": [""], "values": ["output"]}}}


def closing(path: Path, epoch: int = 0) -> dict[str, Any]:
    with h5py.File(path / f"epoch-{epoch:04d}.h5") as file:
        found: dict[str, Any] = json.loads(file["closing"][()])
        return found


def test_a_program_that_changes_its_directory_records_the_one_it_was_started_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One change before `probes run` attaches to the model, and one after it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "module_of_a_program.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    importlib.import_module("module_of_a_program")
    model = nn.Linear(2, 2)
    with started_here():
        monkeypatch.chdir(tmp_path / "elsewhere")
        with probes.attach(model, SPEC, out=tmp_path / "run") as run:
            for _ in run.epochs(1):
                with run.step():
                    model(torch.zeros(1, 2))
                monkeypatch.chdir(tmp_path.parent)
    sys.modules.pop("module_of_a_program")
    code = json.loads((tmp_path / "run" / "run.json").read_text())["code"]
    assert code["directory"] == str(tmp_path)
    assert "module_of_a_program.py" in [one["name"] for one in code["modules"]]
    assert closing(tmp_path / "run")["imported"] == {}


def test_settings_changed_after_attach_are_recorded_at_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast within the step, a default dtype before it, and an imported module: the manifest knows of none of them."""
    (tmp_path / "imported_later.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    model, was = nn.Linear(2, 2), torch.get_default_dtype()
    with probes.attach(model, SPEC, out=tmp_path / "run") as run:
        try:
            torch.set_default_dtype(torch.float64)
            for _ in run.epochs(2):
                with run.step(), torch.autocast("cpu", torch.bfloat16):
                    model(torch.zeros(1, 2, dtype=torch.float32))
                importlib.import_module("imported_later")
        finally:
            torch.set_default_dtype(was)
            sys.modules.pop("imported_later", None)
    first, second = closing(tmp_path / "run"), closing(tmp_path / "run", 1)
    assert first["environment"]["first_step"] == {"autocast": "cpu bfloat16", "default_dtype": "float64"}
    assert first["environment"]["end"] == second["environment"]["end"] == {"default_dtype": "float64"}
    assert [name for name in first["imported"] if name.endswith("imported_later.py")]
    assert first["started"] <= first["ended"] <= second["ended"]
    assert probes.verify(tmp_path / "run").ok


def test_runs_differ_in_the_environment_of_their_first_steps(tmp_path: Path) -> None:
    for name, dtype in (("a", torch.bfloat16), ("b", torch.float16)):
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        with probes.attach(model, SPEC, out=tmp_path / name) as run, run.epoch(0), run.step(), torch.autocast("cpu", dtype):
            model(torch.zeros(1, 2))
    origins = {one.place: (one.a, one.b) for one in probes.diff(tmp_path / "a", tmp_path / "b").origins}
    assert origins["environment.autocast"] == ("cpu bfloat16", "cpu float16")


def test_an_unchanged_environment_is_recorded_as_empty(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with probes.attach(model, SPEC, out=tmp_path / "run") as run, run.epoch(0), run.step():
        model(torch.zeros(1, 2))
    assert closing(tmp_path / "run")["environment"] == {"first_step": {}, "end": {}}


def test_variables_that_numbers_depend_on_are_recorded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("HF_TOKEN", "hf_not_recorded")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    found = environment([torch.device("cpu")], 1, {}).model_dump(mode="json")
    assert found["variables"]["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not {"HF_TOKEN", "PYTHONHASHSEED"} & {*found["variables"]}
    assert found["default_dtype"] == "float32"
    assert {"flash", "mem_efficient", "math"} <= {*found["sdp"]}


def test_the_digest_of_an_old_record_is_that_of_the_keys_it_has() -> None:
    found = environment([torch.device("cpu")], 1, {}).model_dump(mode="json")
    old = {key: value for key, value in found.items() if key not in ("default_dtype", "sdp", "variables")}
    read = EnvironmentRecord.model_validate(old)
    assert read.digest != EnvironmentRecord.model_validate(found).digest
    assert read.digest == blake3_hex(canonical(old))
