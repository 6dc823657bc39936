"""Giving a file its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from probes.errors import StorageError
from probes.run_directory.publish import publish, write_whole
from tests.run_directory.epochs import names


@pytest.fixture(params=["links", "no links"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished file, on a file system with links and on one without."""

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    if request.param == "no links":
        original = os.link
        monkeypatch.setattr(os, "link", lambda *args, **kwargs: original(*args, **kwargs) if args[1].exists() else refuse())
    made = tmp_path / "epoch-0000.h5.tmp"
    made.write_bytes(b"whole")
    return made


def test_a_file_gets_its_final_name_and_loses_the_temporary_one(file: Path) -> None:
    publish(file, file.with_name("epoch-0000.h5"))
    assert names(file.parent) == ["epoch-0000.h5"]
    assert file.with_name("epoch-0000.h5").read_bytes() == b"whole"


def test_nothing_is_ever_replaced(file: Path) -> None:
    other = file.with_name("epoch-0000.h5")
    other.write_bytes(b"mine")
    with pytest.raises(StorageError, match="exists; it is not replaced"):
        publish(file, other)
    assert other.read_bytes() == b"mine"
    assert file.read_bytes() == b"whole"


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_that_cannot_get_its_name_leaves_no_temporary_file(replace: bool, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises((StorageError, IsADirectoryError)):
        write_whole(tmp_path / "a", b"new", replace=replace)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_whole_file_replaces_another_only_on_request(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"old")
    with pytest.raises(StorageError, match="exists"):
        write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    write_whole(tmp_path / "a", b"new", replace=True)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
