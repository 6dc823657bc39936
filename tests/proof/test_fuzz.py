"""Reading any file soon gives a value or an error of the package. `make torture` tries a million files."""

from __future__ import annotations

import time

import pytest

from tests.proof.fuzz import Fuzzed, TooLong, Verbs, fuzz, stopped, targets
from tests.proof.fuzz_verbs import is_sound
from tests.torture.strangers import CASES

SHORT = 80  # of each kind
SLOW = {"closings": 12, "chunks": 12, "verbs": 40}  # each case writes files


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Fuzzed]:
    return {target.name: target for target in targets(tmp_path_factory.mktemp("fuzz"))}


@pytest.mark.parametrize("name", CASES)
def test_a_changed_file_is_read_or_refused(known: dict[str, Fuzzed], name: str) -> None:
    assert fuzz(known[name], range(SLOW.get(name, SHORT))) == []


def test_every_kind_is_fuzzed_a_million_times_in_all(known: dict[str, Fuzzed]) -> None:
    assert tuple(known) == tuple(CASES)
    assert sum(CASES.values()) == 1_000_000


def test_the_runs_whose_files_are_changed_verify(known: dict[str, Fuzzed]) -> None:
    verbs = known["verbs"]
    assert isinstance(verbs, Verbs)
    assert is_sound(verbs.room)


def test_a_fuzz_case_that_hangs_is_stopped() -> None:
    with pytest.raises(TooLong), stopped(0.05):
        time.sleep(5)
