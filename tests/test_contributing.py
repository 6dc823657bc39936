"""CONTRIBUTING.md shows files of the repository; they are the real ones, and so are the lines of tables that it shows."""

from __future__ import annotations

import re

import pytest

from probes.cli import verbs
from probes.registry import KINDS
from tests.pages import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SHOWN = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", TEXT, flags=re.DOTALL))
ROOMS = {path.parent.name for path in (ROOT / "probes").glob("*/__init__.py")} - {"kernels"}


@pytest.mark.parametrize("name", SHOWN)
def test_a_shown_file_is_the_real_one(name: str) -> None:
    assert SHOWN[name] == (ROOT / name).read_text(), "run: make regenerate"


def test_a_kind_of_every_family_a_verb_and_a_preset_are_shown() -> None:
    folders = {name.rpartition("/")[0] for name in SHOWN}
    assert folders >= {"probes/transforms", "probes/edits", "probes/sinks", "probes/commands", "probes/presets", "tests/transforms"}


def test_the_shown_line_of_the_registry_is_the_real_one() -> None:
    assert f'"abs": "{KINDS["transform"]["abs"]}",' in TEXT


def test_the_shown_line_of_the_verbs_is_the_real_one() -> None:
    place, about = verbs()["schema"]
    assert f'"schema": Verb("{place}", "{about}"),' in TEXT


def test_the_table_of_rooms_names_every_room() -> None:
    table = TEXT.partition("## Rooms and layers")[2].partition("\n## ")[0]
    missing = {room for room in ROOMS if f"`{room}`" not in table} - {"error_codes", "presets"}
    assert not missing
