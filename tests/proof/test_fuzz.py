"""Whatever is in a file, reading it ends in a value or in an error of ours, and soon. `make torture` tries a million files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.fuzz import Target, fuzz, targets

SHORT = 80  # of each kind
LONG = {
    "specs": 480_000, "ledgers": 100_000, "manifests": 300_000, "journals": 80_000, "files": 20_000, "closings": 10_000, "chunks": 10_000,
}  # fmt: skip
SLOW = ("closings", "chunks")  # of which each case writes a file of HDF5


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return {target.name: target for target in targets(tmp_path_factory.mktemp("fuzz"))}


@pytest.mark.parametrize("name", LONG)
def test_a_changed_file_is_read_or_refused(known: dict[str, Target], name: str) -> None:
    assert fuzz(known[name], range(SHORT if name not in SLOW else 16)) == []


@pytest.mark.torture
@pytest.mark.parametrize("name", LONG)
def test_a_million_changed_files_are_read_or_refused(known: dict[str, Target], name: str) -> None:
    assert fuzz(known[name], range(SHORT, SHORT + LONG[name])) == []


def test_every_kind_is_fuzzed(tmp_path: Path) -> None:
    assert tuple(target.name for target in targets(tmp_path)) == tuple(LONG)
    assert sum(LONG.values()) == 1_000_000
