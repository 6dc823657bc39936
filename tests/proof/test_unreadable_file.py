"""A user may lack the permission to read one file of a run."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from probes.capture_file.hdf5_read import Hdf5Group
from probes.cli import cli
from probes.clock import SeriesKey
from probes.proof.verify import verify
from probes.proof.verify_file import verify_file
from tests.reader.recorded import Recording, counted


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


def many(path: Path, series: int) -> Path:
    recording = Recording(path)
    for target in range(series):
        for step in range(2):
            recording.take(np.ones(2 + step, "<f4"), key=SeriesKey("acts", f"fc{target}", "output", "train"), step=step)
            recording.take(np.ones((2, 1 + step), "<f4"), key=SeriesKey("rag", f"fc{target}", "output", "train"), step=step)
    return recording.sealed()


def test_a_column_that_cannot_be_read_is_reported_with_its_series_and_the_others_are_checked(tmp_path: Path) -> None:
    path = many(tmp_path, 3)
    with h5py.File(path, "r+") as file:
        group = file["captures/rag/fc0:output"]
        del group["offset"]
        group.create_dataset("offset", data=np.array([b"x", b"y"]).astype(object), dtype=h5py.string_dtype())
        file["captures/rag/fc2:output/values"][0] = 7
    findings = {(one.code, one.series.target) for one in verify_file(path).findings if one.series is not None}
    assert findings >= {("unsafe-type", "fc0"), ("bit-flip", "fc2")}
    assert not {target for _, target in findings} & {"fc1"}


def test_the_attributes_of_a_series_are_read_once_by_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = many(tmp_path, 5), []
    attributes = Hdf5Group.attributes
    monkeypatch.setattr(Hdf5Group, "attributes", lambda group, **options: read.append(group.name) or attributes(group, **options))
    found = verify_file(path)
    of_series = [name for name in read if ":" in name]
    assert (found.captures, found.unread) == (20, False)
    assert len(of_series) == len(set(of_series)) == 10
