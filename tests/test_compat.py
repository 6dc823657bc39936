"""The page of versions shows what was tried, and the script tries what pyproject.toml declares."""

from __future__ import annotations

import json

from probes.optional_package import OLDEST_TORCH
from tests import compat


def test_the_page_shows_the_rows_that_were_run() -> None:
    text = compat.PAGE.read_text(encoding="utf-8")
    assert compat.page(text) == text, "run: python -m tests.compat --render"
    assert {*json.loads(compat.RESULT.read_text(encoding="utf-8"))["rows"]} <= {*compat.names()}


def test_the_oldest_torch_is_the_declared_one_and_every_test_of_a_row_exists() -> None:
    assert compat.declared()["torch"] == ".".join(map(str, OLDEST_TORCH))
    assert not [path for path in compat.CORE if not (compat.ROOT / path).exists()]
