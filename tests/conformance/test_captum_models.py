from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from torch import nn

from tests.conformance.captum_models import MODELS, case_of
from tests.conformance.examine import examine
from tests.conformance.table import row_of, stored_row

pytest.importorskip("captum", reason="captum is not installed; the extra `dev` brings it")
FAST = ("reused linear", "pass through", "layer outputs", "future of three")


def check(name: str, path: Path) -> None:
    case = case_of(name)
    assert row_of(case, examine(case, path)) == stored_row(case), "run `python docs/conformance.py`"


@pytest.mark.parametrize("name", FAST)
def test_a_model_that_captum_tests_with_is_captured_as_by_hand(name: str, tmp_path: Path) -> None:
    check(name, tmp_path / "run")


@pytest.mark.torture
@pytest.mark.parametrize("name", [name for name in MODELS if name not in FAST])
def test_all_other_models_of_captum_are_captured_as_by_hand(name: str, tmp_path: Path) -> None:
    check(name, tmp_path / "run")


def test_all_models_of_captum_are_in() -> None:
    from captum.testing.helpers import basic_models

    there = {name for name, kind in vars(basic_models).items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    assert there == {kind for kind, *_ in MODELS.values()}
