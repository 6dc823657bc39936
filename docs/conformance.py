"""Run the conformance matrix; write docs/conformance.md and the README's table: `python docs/conformance.py`."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.conformance.case import Case  # noqa: E402 - the tests are found from the root
from tests.conformance.examine import Outcome, examine  # noqa: E402  # the tests are found from the root
from tests.conformance.families import FAMILIES  # noqa: E402  # the tests are found from the root
from tests.conformance.table import PAGE, README, SUMMARY, page, summary  # noqa: E402  # the tests are found from the root


def outcome(case: Case) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        found = examine(case, Path(folder) / "run")
    print(f"{case.name}: {found}", file=sys.stderr)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    found = {case.name: outcome(case) for family in FAMILIES for case in family.cases}
    PAGE.write_text(page(FAMILIES, found), encoding="utf-8")
    README.write_text(SUMMARY.sub(lambda _: summary(FAMILIES), README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
