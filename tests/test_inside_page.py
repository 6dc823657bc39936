from __future__ import annotations

from pathlib import Path

from tests.pages import agree, script


def test_every_block_of_the_page_about_the_inside_of_a_step_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    inside = script("inside")
    shown, now = inside.PAGE.read_text(encoding="utf-8"), inside.page(tmp_path)
    assert shown == now or agree(shown, now), "run: make docs"


def test_pages_agree_if_only_the_last_digits_of_decimal_numbers_differ() -> None:
    assert agree("loss 1.170, [0.5 2.1e-3]", "loss 1.169, [0.49 2.2e-3]")
    assert not agree("loss 1.170", "loss 1.168")
    assert not agree("loss 1.170", "cost 1.170")
    assert not agree("3 steps, 0.5", "4 steps, 0.5")
    assert not agree("0.5 0.5", "0.5")
