"""A person finds the ready-made specs, and reads one, from the command line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from probes.cli import cli
from probes.commands.presets import VIEWS, spec_of
from probes.spec import load_text
from probes.spec.spec_files import preset_names

NAMES = [name.removeprefix("preset:") for name in preset_names()]


def said(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words], env={"COLUMNS": "200"})


def test_all_are_listed_with_the_question_that_each_answers() -> None:
    rows = said("presets").stdout.splitlines()[1 : 1 + len(NAMES)]
    assert [row.split()[0] for row in rows] == NAMES
    assert all("?" in row for row in rows)
    assert set(NAMES) >= set(VIEWS)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_printed_as_a_spec_with_its_view_in_a_report(name: str) -> None:
    text = said("presets", name).stdout
    assert spec_of(f"preset:{name}").rstrip() in text
    assert load_text(text.encode(), f"{name}.yaml", None).spec.probes
    assert f"probes run preset:{name} train.py" in text
    assert VIEWS.get(name, "") in text
    assert said("presets", f"preset:{name}").stdout == text


def test_json_has_the_question_the_spec_and_the_view() -> None:
    found = json.loads(said("presets", "--json").stdout)
    assert list(found) == NAMES
    assert set(found["dead-units"]) == {"about", "spec", "report"}


def test_an_unknown_preset_gets_the_nearest_and_explain_knows_where_presets_are_shown() -> None:
    assert "did you mean `dead-units`?" in said("presets", "dead-unit").stderr
    assert "`dead-units` is a preset; `probes presets dead-units` shows it" in said("explain", "dead-units").stderr
