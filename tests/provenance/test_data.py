from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from probes.errors import StorageError
from probes.provenance.data import data_digests


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"abc")
    assert data_digests({"x": tmp_path / "x.bin"}) == {"x": f"blake3:{blake3(b'abc').hexdigest()}"}


def test_the_digest_of_a_directory_follows_every_name_and_byte(tmp_path: Path) -> None:
    found = set()
    for name, content in (("a", b"1"), ("a", b"2"), ("b", b"2"), ("sub/b", b"2")):
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_bytes(content)
        found.add(data_digests({"d": tmp_path / "d"})["d"])
    assert len(found) == 4


def test_the_digest_of_a_directory_follows_what_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "store" / "train").mkdir(parents=True)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train").symlink_to(tmp_path / "store" / "train")
    (tmp_path / "store" / "train" / "again").symlink_to(tmp_path / "d")
    found = set()
    for content in (b"1", b"2"):
        (tmp_path / "store" / "train" / "a").write_bytes(content)
        found.add(data_digests({"d": tmp_path / "d"})["d"])
    assert len(found) == 2


def test_the_digest_of_a_directory_covers_names_that_cannot_be_decoded(tmp_path: Path) -> None:
    found = set()
    for name in ("\udcff", "\udcfe"):
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / name).write_bytes(b"1")
        found.add(data_digests({"d": tmp_path / "d"})["d"])
    assert len(found) == 2


def test_data_that_is_missing_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        data_digests({"x": tmp_path / "gone"})
