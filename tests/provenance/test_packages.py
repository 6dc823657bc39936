"""The installed packages are read once, and again when others are installed."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from probes.provenance import packages as module
from probes.provenance.packages import packages


def install(place: Path, name: str, release: str, more: bytes = b"") -> None:
    folder = place / f"{name}-{release}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_bytes(f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n".encode() + more)


def test_a_package_whose_description_is_not_in_utf_8_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "old", "0.3", "Author: André\n".encode("latin-1"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages()["old"] == "0.3"


@pytest.mark.parametrize("first", ["1.0", "2.0"])
def test_the_imported_release_is_listed_if_a_package_is_installed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    for release in ("1.0", "2.0"):
        install(tmp_path / release, "twice", release)
    for release in sorted(("1.0", "2.0"), key=lambda one: one == first):
        monkeypatch.syspath_prepend(str(tmp_path / release))
    assert packages()["twice"] == metadata.version("twice") == first


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
