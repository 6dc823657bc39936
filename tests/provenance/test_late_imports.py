"""Modules that a program imports while it trains: in a function, in a later epoch, in a worker, or under no name at all."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import multiprocessing
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.utils.data import DataLoader, Dataset

import probes
from probes.commands.verify import verify as command
from probes.provenance import child_processes
from probes.provenance.child_processes import ChildImports
from probes.provenance.code_files import LARGEST_SOURCE
from tests import independent_verifier

STARTS = BaseProcess.start
SPEC = {"version": 1, "probes": {"acts": {"modules": [""], "values": ["output"]}}}


class Lazy(Dataset[torch.Tensor]):
    """Imports a module when it is first asked for a sample, which is in a worker."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        module: Any = importlib.import_module("augment")
        return torch.full((2,), float(module.SCALE))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PROBES_KEEP_SOURCES", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("losses", "augment", "schedule"):
        (tmp_path / f"{name}.py").write_text(f"# {name}\nSCALE = 2\napi_key = 'sk-0123456789abcdefghij'\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    for name in ("losses", "augment", "schedule"):
        sys.modules.pop(name, None)


def trained(out: Path, *, workers: int = 0, late: bool = True, way: str = "fork") -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    with probes.attach(model, SPEC, out=out) as run:
        for epoch in run.epochs(2):
            for batch in run.steps(
                DataLoader(Lazy(), num_workers=workers, multiprocessing_context=way) if workers else [torch.zeros(1, 2)]
            ):
                model(batch)
                if late:
                    importlib.import_module("losses" if not epoch else "schedule")


def closing(run: Path, epoch: int) -> dict[str, Any]:
    with h5py.File(run / f"epoch-{epoch:04d}.h5") as file:
        found: dict[str, Any] = json.loads(file["closing"][()])
        return found


def kept(run: Path, epoch: int) -> dict[str, str]:
    content = (run / f"sources.epoch-{epoch:04d}.zip").read_bytes()
    assert closing(run, epoch)["sources"] == {"name": f"sources.epoch-{epoch:04d}.zip", "sha256": sha256(content).hexdigest()}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_source_of_a_module_that_is_imported_late_is_kept_once_without_its_secrets(project: Path) -> None:
    trained(project / "run")
    assert [*kept(project / "run", 0)] == ["losses.py"]
    assert [*kept(project / "run", 1)] == ["schedule.py"]
    assert "SCALE = 2" in kept(project / "run", 1)["schedule.py"]
    assert "sk-0123" not in kept(project / "run", 1)["schedule.py"]
    assert {*closing(project / "run", 1)["imported"]} >= {"losses.py", "schedule.py"}
    assert probes.verify(project / "run").ok
    independent_verifier.check_run(project / "run")


@pytest.mark.parametrize(
    "way", ["fork", *(pytest.param(way, marks=pytest.mark.torture) for way in ("spawn", "forkserver"))]
)  # the last two import torch again
def test_imports_of_a_worker_are_recorded_and_kept(project: Path, way: str) -> None:
    trained(project / "run", workers=1, late=False, way=way)
    assert BaseProcess.start is STARTS
    assert "augment" not in sys.modules
    assert closing(project / "run", 0)["imported"]["augment.py"] == sha256((project / "augment.py").read_bytes()).hexdigest()
    assert "augment.py" in kept(project / "run", 0)


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_imports_of_a_process_that_is_not_forked_are_recorded(project: Path, way: str) -> None:
    noted = ChildImports()
    before = noted.open()
    (project / "target.py").write_text("import losses\n\ndef run() -> None:\n    import augment\n")
    with pytest.MonkeyPatch.context() as here:
        here.setattr(child_processes, "child_imports", noted)
        noted.start()
        process = multiprocessing.get_context(way).Process(target=importlib.import_module("target").run)
        process.start()
        assert not [name for name in vars(process) if "probes" in name]
        process.join()
        noted.stop()
    assert process.exitcode == 0
    assert {Path(one).name for one in noted.noted(before)} >= {"target.py", "losses.py", "augment.py"}
    assert BaseProcess.start is STARTS


def test_a_change_of_a_late_module_is_named_by_diff(project: Path) -> None:
    trained(project / "a")
    for name in ("losses", "schedule"):
        sys.modules.pop(name)
    (project / "schedule.py").write_text("SCALE = 3\n")
    trained(project / "b")
    places = [one.place for one in probes.diff(project / "a", project / "b").origins]
    assert "code.modules.schedule.py" in places
    assert "code.modules.losses.py" not in places


def test_late_sources_that_were_changed_or_named_wrongly_are_found(project: Path) -> None:
    trained(project / "run")
    path, away = project / "run" / "sources.epoch-0001.zip", project / "elsewhere"
    content = path.read_bytes()
    for damage in (lambda: path.write_bytes(content + b"x"), lambda: path.rename(away), lambda: path.symlink_to(away)):
        damage()
        assert [(one.code, one.file) for one in probes.verify(project / "run").findings] == [("sources-edited", path.name)]
        assert not independent_verifier.verifies(project / "run")
    path.unlink()
    away.rename(path)
    file = project / "run" / "epoch-0001.h5"
    for name in ("../elsewhere", "x" * 300, "", "..", "a\u0000b"):
        with h5py.File(file, "r+") as opened:
            found = json.loads(opened["closing"][()]) | {"sources": {"name": name, "sha256": sha256(content).hexdigest()}}
            del opened["closing"]
            opened.create_dataset("closing", data=np.bytes_(json.dumps(found).encode()))
        done = CliRunner().invoke(command, [str(project / "run")])
        assert isinstance(done.exception, SystemExit)
        assert "sources-edited" in done.output


def test_a_module_without_a_name_is_found_by_the_classes_of_the_model(project: Path) -> None:
    """`spec_from_file_location` and `exec_module`, as loaders of plug-ins and configurations do it."""
    (project / "layers.py").write_text("import torch\nclass Layer(torch.nn.Linear):\n    def forward(self, x):\n        return x\n")
    spec = importlib.util.spec_from_file_location("layers", project / "layers.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Layer(2, 2)
    with probes.attach(model, SPEC, out=project / "run") as run, run.epoch(0), run.step():
        model(torch.zeros(1, 2))
    assert "layers.py" in [one["name"] for one in probes.open(project / "run").manifest["code"]["modules"]]


def test_no_source_is_kept_if_sources_are_switched_off(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBES_KEEP_SOURCES", "0")
    trained(project / "run")
    assert not [*(project / "run").glob("*.zip")]
    assert "losses.py" in closing(project / "run", 0)["imported"]


def test_a_late_source_that_is_not_kept_is_stated_once(project: Path) -> None:
    (project / "losses.py").write_text("#" * (LARGEST_SOURCE + 1))
    trained(project / "run")
    assert "1 of 1 files are" in closing(project / "run", 0)["unknown"]["code.sources"]
    assert "unknown" not in closing(project / "run", 1)
