"""Giving a file its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from probes.errors import StorageError
from probes.run_directory.publish import publish
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
