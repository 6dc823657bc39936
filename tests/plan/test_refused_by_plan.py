"""Specs that a model, or a run of it, does not fit: each is refused in exactly the words that stand next to it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from probes.error_codes import MODEL
from tests import refused_by_plan
from tests.old_torch import compiles_with_hooks
from tests.regenerate import COMMAND


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """What is imported once is no part of what a spec takes."""
    refused_by_plan.said(refused_by_plan.REFUSED[0])


CASES = [
    pytest.param(path, id=path.stem, marks=compiles_with_hooks if path.stem == "fullgraph" else ()) for path in refused_by_plan.REFUSED
]


@pytest.mark.parametrize("path", CASES)
def test_a_spec_that_does_not_fit_is_refused_with_the_recorded_text(path: Path) -> None:
    began = time.process_time()
    said = refused_by_plan.said(path)
    if "compiled" not in path.read_text("utf-8").splitlines()[0]:
        assert time.process_time() - began < 6  # a guard against what grows with the square, on a busy machine too
    assert said == path.with_suffix(".txt").read_text("utf-8"), f"run: {COMMAND}"


ELSEWHERE = {
    "bad-reference": "said by the spec alone",
    "data-of-value": "said by the spec alone",
    "sharded-parameter": "needs a process group: tests/hooks/test_fully_shard.py",
    "fast-path": "a note",
    "graph-break": "a note",
    "recompile": "needs a setting of PyTorch: tests/hooks/capture/test_compiled.py",
    "memory-peak": "a note",
    "old-compiler": "needs an older PyTorch: tests/plan/test_resolve.py",
    "other-schedule": "a note",
    "wrapped-path": "a note",
    "inputs-without-names": "a note",
    "no-model-fits": "said around a script",
    "model-not-called": "said around a script",
    "ambiguous-model": "said around a script",
}


def test_every_code_about_models_has_a_case() -> None:
    told = {
        code for path in refused_by_plan.REFUSED for code in re.findall(r"error\[([\w-]+)\]", path.with_suffix(".txt").read_text("utf-8"))
    }
    assert set(MODEL) - told - set(ELSEWHERE) == set()


EXAMPLES = [code for code, row in MODEL.items() if row.wrong]


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_wrong_example_of_a_code_has_this_problem_and_the_right_one_has_none(code: str, tmp_path: Path) -> None:
    wrong, right = MODEL[code].wrong, MODEL[code].right
    assert re.findall(r"error\[([\w-]+)\]", refused_by_plan.said_of(wrong, tmp_path)) == [code]
    assert refused_by_plan.said_of(right, tmp_path) == ""
