"""The installed packages are read once, and again when others are installed."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from probes.provenance import packages as module
from probes.provenance.packages import packages


def test_packages_are_read_again_when_one_is_installed_and_not_when_a_script_writes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    reads: list[int] = []
    monkeypatch.setattr(module, "distributions", lambda: reads.append(1) or metadata.distributions())
    first = packages()
    assert first["torch"] == metadata.version("torch")
    (tmp_path / "loss.csv").write_text("1")
    assert packages() == first
    assert len(reads) == 1
    installed = tmp_path / "late_one-1.5.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: late-one\nVersion: 1.5\n")
    assert packages() == first | {"late-one": "1.5"}
    assert len(reads) == 2
    assert str(tmp_path) in sys.path
