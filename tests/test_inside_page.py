from __future__ import annotations

from pathlib import Path

from tests.pages import script


def test_every_block_of_the_page_about_the_inside_of_a_step_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    inside = script("inside")
    assert inside.page(tmp_path) == inside.PAGE.read_text(encoding="utf-8"), "run: make docs"
