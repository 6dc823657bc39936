from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.case import Case
from tests.conformance.examine import examine
from tests.conformance.further_models import CASES

FAST = ("codebook", "generator")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in FAST], ids=lambda case: case.name)
def test_a_model_of_a_further_kind_is_captured_as_by_hand(case: Case, tmp_path: Path) -> None:
    assert examine(case, tmp_path / "run").values > 0


@pytest.mark.torture
@pytest.mark.parametrize("case", [case for case in CASES if case.name not in FAST], ids=lambda case: case.name)
def test_all_other_models_of_further_kinds_are_captured_as_by_hand(case: Case, tmp_path: Path) -> None:
    assert examine(case, tmp_path / "run").values > 0
