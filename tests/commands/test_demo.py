from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import probes
from probes.commands import demo as module
from probes.commands.demo import NEEDS, SCRIPTS, demo, source, unpack
from probes.errors import MissingExtra, UsageError
from tests.warm import programs


def test_the_demo_ends_with_three_sealed_files_and_what_to_type_next(tmp_path: Path) -> None:
    python = str(programs.commands() / "python")
    about = os.environ | {"WARM_PYTHON": python}
    done = programs.run("-m", "probes", "demo", cwd=tmp_path, env=about)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "probes-demo-digits"
    assert sorted(file.name for file in (folder / "runs" / "1").glob("*.h5")) == [f"epoch-000{epoch}.h5" for epoch in range(3)]
    run = probes.open(folder / "runs" / "1")
    assert all(len(series) for series in run.series)
    assert "verifies" in done.stdout
    typed = next(line.split() for line in done.stdout.splitlines() if line.strip().startswith("probes show"))
    assert len(probes.open(folder / typed[2]).find(typed[3])) > 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_example_has_its_script_its_spec_and_a_page(name: str) -> None:
    assert {SCRIPTS[name], "probe.yaml", "README.md"} <= {file.name for file in source(name).iterdir()}


def test_files_that_a_reader_changed_are_not_removed(tmp_path: Path) -> None:
    unpack("digits", tmp_path)
    (tmp_path / "probe.yaml").write_text("mine")
    unpack("digits", tmp_path)
    assert (tmp_path / "probe.yaml").read_text() == "mine"


def test_a_file_instead_of_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(UsageError, match="taken"):
        unpack("digits", tmp_path / "taken")


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "NEEDS", NEEDS | {"digits": ("no_such_package", "demo")})
    result = CliRunner().invoke(demo, ["--out", str(tmp_path / "out")])
    assert isinstance(result.exception, MissingExtra)
    assert "torch-probes[demo]" in str(result.exception)
    assert not (tmp_path / "out").exists()
