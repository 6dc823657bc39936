"""The page "What is a step" is what the scripts' truths say."""

from __future__ import annotations

import pytest

from tests.loops.truth import Truth, truths
from tests.pages import script


def test_the_page_on_steps_is_up_to_date() -> None:
    steps = script("steps")
    assert steps.page() == steps.PAGE.read_text(encoding="utf-8"), "run `python docs/steps.py`"


@pytest.mark.parametrize("truth", [pytest.param(each, id=str(each)) for each in truths()])
def test_each_script_states_its_group_its_rule_and_the_cells_of_its_row(truth: Truth) -> None:
    assert truth.data["group"] in script("steps").GROUPS
    assert truth.data["why"]
    assert {"step", "epoch"} <= {*truth.data["table"]}
