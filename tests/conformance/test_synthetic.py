from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.case import Case
from tests.conformance.examine import examine
from tests.conformance.synthetic import CASES
from tests.conformance.table import row_of, stored_row


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_probes_equal_hooks_by_hand_and_change_nothing(case: Case, tmp_path: Path) -> None:
    assert row_of(case, examine(case, tmp_path / "run")) == stored_row(case), "run `python docs/conformance.py`"
