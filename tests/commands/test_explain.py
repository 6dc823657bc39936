from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from probes.cli import cli
from probes.error_codes import CODES


def explain(*words: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *words])


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_explained(code: str) -> None:
    result = explain(code)
    assert result.exit_code == 0
    assert CODES[code].meaning in result.stdout


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_advice_or_an_example(code: str) -> None:
    row = CODES[code]
    assert row.right or len(row.advice.split()) >= 5
    assert " ".join(row.advice.split()) in " ".join(explain(code).stdout.split())


def test_examples_are_shown() -> None:
    text = explain("unknown-key").stdout
    assert "    acts: {hook: forward, module: [fc1]}" in text.replace("      acts", "    acts")
    assert text.index("wrong") < text.index("right")


def test_without_a_code_all_are_listed() -> None:
    text = explain().stdout
    assert all(code in text for code in CODES)


def test_an_unknown_code_gets_the_nearest() -> None:
    result = explain("unknow-key")
    assert result.exit_code == 2
    assert "did you mean `unknown-key`?" in result.stderr


def test_json_is_printed_on_request() -> None:
    assert json.loads(explain("--json", "null").stdout)["null"]["meaning"] == CODES["null"].meaning
