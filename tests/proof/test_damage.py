from __future__ import annotations

from pathlib import Path

import pytest

from probes.proof.verify import verify
from tests import independent_verifier
from tests.pages import ROOT
from tests.proof import damage

EVERY = 29  # of what is tried, so many are left out between two in `make test`; torture tries all


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = damage.sealed(tmp_path_factory.mktemp("damage") / "run")
    assert verify(made).ok
    assert independent_verifier.verifies(made)
    return made


def test_the_counts_of_the_readme_are_those_of_what_is_tried(run: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert damage.table(damage.tried(run)) in text, "run: make docs"


def test_a_sample_of_all_damage_is_found_by_both_verifiers_with_its_code(run: Path) -> None:
    missed = {
        one.what: codes for one in list(damage.damages(run, every_byte=False))[::EVERY] if (codes := damage.missed(run, one)) is not None
    }
    assert not missed


def test_a_sample_of_flipped_bytes_is_found_with_its_code(run: Path) -> None:
    missed = {one.what: codes for one in list(damage.flips(run))[7::907] if (codes := damage.missed(run, one)) is not None}
    assert not missed


def test_a_sample_of_all_damage_to_a_file_is_found_where_the_file_is_alone(run: Path) -> None:
    flips = list(damage.flips(run))[3::1201]
    edits = list(damage.objects(run))[5::EVERY]
    assert not [one.what for one in (*flips, *edits) if damage.believed(run, one)]


@pytest.mark.torture
def test_all_damage_to_a_file_is_found_where_the_file_is_alone(run: Path) -> None:
    assert not [one.what for one in (*damage.flips(run), *damage.objects(run)) if damage.believed(run, one)]


@pytest.mark.torture
def test_all_damage_is_found_by_both_verifiers_with_its_code(run: Path) -> None:
    missed = {one.what: codes for one in damage.damages(run, every_byte=False) if (codes := damage.missed(run, one)) is not None}
    assert not missed


@pytest.mark.torture
def test_every_flipped_byte_is_found_with_its_code(run: Path) -> None:
    missed = {}
    for number, one in enumerate(damage.flips(run)):
        codes = damage.missed(run, one, twice=number % 16 == 0)
        if codes is not None:
            missed[one.what] = codes
    assert not missed
