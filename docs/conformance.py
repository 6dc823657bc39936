"""Runs the conformance matrix and writes docs/conformance.md: `python docs/conformance.py`, in the development environment."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.conformance.architectures import CONFIGURATIONS, case_of  # noqa: E402 - the tests are found from the root
from tests.conformance.case import Case  # noqa: E402
from tests.conformance.examine import Outcome, examine  # noqa: E402
from tests.conformance.synthetic import CASES  # noqa: E402
from tests.conformance.table import page  # noqa: E402


def outcome(case: Case) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        found = examine(case, Path(folder) / "run")
    print(f"{case.name}: {found}", file=sys.stderr)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    cases = [*CASES, *(case_of(name) for name in CONFIGURATIONS)]
    text = page([(case, outcome(case)) for case in cases], len(CASES))
    (ROOT / "docs" / "conformance.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
