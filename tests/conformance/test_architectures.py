from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.architectures import CONFIGURATIONS, FAST, case_of
from tests.conformance.examine import examine
from tests.conformance.table import row_of, stored_row

pytest.importorskip("transformers", reason="transformers is not installed; the extra `minilm` brings it")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers itself


def check(name: str, path: Path) -> None:
    case = case_of(name)
    assert row_of(case, examine(case, path)) == stored_row(case), "run `python docs/conformance.py`"


@pytest.mark.parametrize("name", FAST)
def test_an_architecture_is_captured_as_by_hand_and_trains_as_without(name: str, tmp_path: Path) -> None:
    check(name, tmp_path / "run")


@pytest.mark.torture
@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name not in FAST])
def test_all_other_architectures_are_captured_as_by_hand(name: str, tmp_path: Path) -> None:
    check(name, tmp_path / "run")
