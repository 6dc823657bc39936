"""A user may lack the permission to read one file of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from probes.cli import cli
from probes.proof.verify import verify
from tests.reader.recorded import counted


def refuse(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse to open a file; `chmod` would not do, because tests may run as root."""
    opened = os.open

    def open_others(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", open_others)


@pytest.mark.parametrize("name", ["epoch-0001.h5", "run.json"])
def test_a_file_that_cannot_be_read_is_a_finding_and_the_others_are_verified(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(tmp_path, 3)
    (tmp_path / "run.json").write_text("{}")
    others = {one.file: one.ok for one in verify(tmp_path).files if one.file != name}
    refuse(name, monkeypatch)
    verdict = verify(tmp_path)
    (found,) = [one for one in verdict.findings if one.code == "unreadable"]
    assert found.file == name
    assert "Permission denied" in found.message
    assert {one.file: one.ok for one in verdict.files if one.file != name} == others


def test_a_report_of_a_run_with_a_file_that_cannot_be_read_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(tmp_path / "run", 2)
    refuse("epoch-0001.h5", monkeypatch)
    done = CliRunner().invoke(cli, ["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 1
    assert "unreadable" in (tmp_path / "page.html").read_text(encoding="utf-8")
