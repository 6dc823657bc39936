"""Specs that a model, or a run of it, does not fit: each is refused in exactly the words that stand beside it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from probes.error_codes import MODEL
from tests import unfit
from tests.regenerate import COMMAND


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """What is imported once is no part of what a spec takes."""
    unfit.said(unfit.UNFIT[0])


@pytest.mark.parametrize("path", unfit.UNFIT, ids=lambda path: path.stem)
def test_what_does_not_fit_is_refused_in_these_words_within_a_second(path: Path) -> None:
    began = time.process_time()
    said = unfit.said(path)
    if "compiled" not in path.read_text("utf-8").splitlines()[0]:
        assert time.process_time() - began < 1
    assert said == path.with_suffix(".txt").read_text("utf-8"), f"run: {COMMAND}"


ELSEWHERE = {
    "bad-reference": "said by the spec alone",
    "data-of-value": "said by the spec alone",
    "sharded-parameter": "needs a process group: tests/hooks/test_fully_shard.py",
    "fast-path": "a note",
    "memory-peak": "a note",
    "wrapped-path": "a note",
    "inputs-without-names": "a note",
    "no-model-fits": "said around a script",
    "model-not-called": "said around a script",
}


def test_every_code_about_models_has_a_case() -> None:
    told = {code for path in unfit.UNFIT for code in re.findall(r"error\[([\w-]+)\]", path.with_suffix(".txt").read_text("utf-8"))}
    assert set(MODEL) - told - set(ELSEWHERE) == set()


EXAMPLES = [code for code, row in MODEL.items() if row.wrong]


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_of_a_code_is_wrong_in_this_way_and_right_as_it_is_mended(code: str, tmp_path: Path) -> None:
    wrong, right = MODEL[code].wrong, MODEL[code].right
    assert re.findall(r"error\[([\w-]+)\]", unfit.said_of(wrong, tmp_path)) == [code]
    assert unfit.said_of(right, tmp_path) == ""
