"""Which files a program has imported, and the copy of their sources."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib.util import LazyLoader, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

import probes
from probes.provenance.code_files import module_files, module_records, sources

SPEC = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["0"]}}}


def module(name: str, file: Path | str | None) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = str(file) if file is not None else None
    return made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vendored").mkdir()
    for name in ("train.py", "layers.py", "vendored/losses.py"):
        (tmp_path / name).write_text(f"# {name}\napi_key = 'sk-0123456789abcdefghij'\n")
    return tmp_path


def test_every_imported_file_outside_of_installed_packages_is_found(project: Path) -> None:
    outside = project.parent / "elsewhere.py"
    outside.write_text("")
    loaded = {
        "layers": module("layers", project / "layers.py"),
        "losses": module("losses", project / "vendored" / "losses.py"),
        "elsewhere": module("elsewhere", outside),
        "numpy": np,
        "json": json,
        "probes": probes,
        "gone": module("gone", project / "gone.py"),
        "none": module("none", None),
        "frozen": module("frozen", "<frozen importlib._bootstrap>"),
    }
    found = module_files(project / "train.py", loaded)
    assert list(found) == sorted(["layers.py", "train.py", "vendored/losses.py", str(outside)])


def test_a_module_in_an_archive_is_recorded_as_the_archive(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(project / "library.zip", "w") as archive:
        archive.writestr("zipped_module.py", "x = 1\n")
    monkeypatch.syspath_prepend(str(project / "library.zip"))
    assert list(module_files(None, {"zipped_module": importlib.import_module("zipped_module")})) == ["library.zip"]
    monkeypatch.delitem(sys.modules, "zipped_module")


def test_modules_that_are_loaded_at_their_first_use_stay_unloaded(project: Path) -> None:
    (project / "lazy.py").write_text("raise RuntimeError('loaded')\n")
    spec = spec_from_file_location("lazy", project / "lazy.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    lazy = module_from_spec(spec)
    spec.loader.exec_module(lazy)

    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> str:
            raise RuntimeError(f"loaded by {name}")

    assert list(module_files(None, {"lazy": lazy, "other": Lazy("other"), "none": 3})) == ["lazy.py"]


def test_nothing_of_python_and_of_installed_packages_counts_as_imported() -> None:
    loaded = "import sys, torch, h5py, yaml, einops, probes.runner.attach, probes.provenance.code_files as modules"
    program = f"{loaded}; print(modules.module_files(None, sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"


def test_sources_are_kept_without_secrets_and_as_the_same_bytes(project: Path) -> None:
    files = module_files(project / "train.py", {"layers": module("layers", project / "layers.py")})
    unknown: dict[str, str] = {}
    kept = sources(files, unknown)
    assert kept == sources(files, unknown)
    assert unknown == {}
    with zipfile.ZipFile(io.BytesIO(kept)) as archive:
        assert archive.namelist() == ["layers.py", "train.py"]
        assert b"sk-0123" not in archive.read("layers.py")
    (project / "layers.py").write_bytes(b"#" * (2 << 20))
    sources(files, unknown)
    assert "1 of 2 files" in unknown["code.sources"]


def test_a_digest_is_that_of_the_bytes_and_follows_a_change(project: Path) -> None:
    files, unknown = {"layers.py": project / "layers.py"}, dict[str, str]()
    (first,) = module_records(files, unknown)
    assert first.sha256 == sha256((project / "layers.py").read_bytes()).hexdigest()
    (project / "layers.py").write_text("changed = 1\n")
    (second,) = module_records(files, unknown)
    assert second.sha256 != first.sha256


def test_a_change_of_an_untracked_module_changes_the_identity_of_the_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBES_KEEP_SOURCES", "1")
    monkeypatch.setitem(sys.modules, "layers", module("layers", project / "layers.py"))
    codes = []
    for name in ("a", "b"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2))
        with probes.attach(model, SPEC, project / name) as run, run.epoch(0), run.step():
            model(torch.ones(1, 2))
        assert probes.verify(project / name).ok
        codes.append(probes.open(project / name).manifest["identity"]["code"])
        (project / "layers.py").write_text(f"changed = '{name}'\n")
    assert codes[0] != codes[1]
    found = [one.place for one in probes.diff(project / "a", project / "b").origins]
    assert "code.modules.layers.py" in found
    with (project / "b" / "sources.zip").open("ab") as file:
        file.write(b"x")
    assert [finding.code for finding in probes.verify(project / "b").findings] == ["sources-edited"]


def test_a_module_whose_file_is_not_a_path_is_left_out() -> None:
    modules = {name: ModuleType(name) for name in ("long", "null", "lines")}
    for name, place in (("long", "x" * 5000), ("null", "a\0b"), ("lines", "a\nb")):
        modules[name].__file__ = place
    assert module_files(None, modules) == {}
