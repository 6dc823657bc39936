from __future__ import annotations

from tests.conformance.families import FAMILIES
from tests.conformance.table import PAGE, README, stored_row, summary


def test_the_page_has_a_row_for_every_model_and_no_other() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    headers = len(FAMILIES)
    assert [row for row in rows if not row.startswith("| model |")] == [stored_row(case) for family in FAMILIES for case in family.cases]
    assert len(rows) == headers + sum(len(family.cases) for family in FAMILIES)


def test_the_readme_has_the_sums_of_the_page() -> None:
    assert summary(FAMILIES) in README.read_text(encoding="utf-8"), "run `python docs/conformance.py`"
