"""Whole scripts in the styles of real repositories: the right model, the right clock, the right bytes, and nothing changed."""

from __future__ import annotations

import pytest

from tests.loops.trials import Trials
from tests.loops.truth import Truth, truths

ALL = [pytest.param(each, id=str(each)) for each in truths()]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"))


@pytest.mark.parametrize("truth", ALL)
def test_the_truth_by_hand_fits_the_calls_of_the_script(truth: Truth, trials: Trials) -> None:
    assert trials.misfits(truth) == []


@pytest.mark.parametrize("truth", ALL)
def test_a_script_is_captured_as_its_truth_says(truth: Truth, trials: Trials) -> None:
    if wrong := trials.faults(truth):
        pytest.fail("\n".join(wrong), pytrace=False)
