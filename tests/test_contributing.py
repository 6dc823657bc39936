"""CONTRIBUTING.md shows files of the repository; they are the real ones, and so are the lines of tables that it shows."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from probes.cli import verbs
from probes.registry import KINDS
from tests.pages import ROOT, parsed

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SHOWN = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", TEXT, flags=re.DOTALL))
ROOMS = {path.name for path in (ROOT / "probes").iterdir() if path.is_dir() and path.name != "__pycache__"}
TABLE = TEXT.partition("## Rooms and layers")[2].partition("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| ")][1:]
DISTRIBUTIONS = {"yaml": "PyYAML", "pydantic_core": "pydantic"}


def packages(path: Path) -> set[str]:
    """The third-party packages that a file imports anywhere in it, by their names on PyPI."""
    found = set()
    for node in ast.walk(parsed(path)):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {name.partition(".")[0] for name in names}
    return {DISTRIBUTIONS.get(name, name) for name in found - sys.stdlib_module_names - {"probes"}}


@pytest.mark.parametrize("name", SHOWN)
def test_a_shown_file_is_the_real_one(name: str) -> None:
    assert SHOWN[name] == (ROOT / name).read_text(), "run: make regenerate"


def test_a_kind_of_every_family_a_verb_and_a_preset_are_shown() -> None:
    folders = {name.rpartition("/")[0] for name in SHOWN}
    assert folders >= {"probes/transforms", "probes/edits", "probes/sinks", "probes/commands", "probes/presets", "tests/transforms"}


def test_the_line_of_the_registry_on_the_page_is_the_real_one() -> None:
    assert f'"abs": "{KINDS["transform"]["abs"]}",' in TEXT


def test_the_line_of_the_verbs_on_the_page_is_the_real_one() -> None:
    place, about = verbs()["schema"]
    assert f'"schema": Verb("{place}", "{about}"),' in TEXT


def test_the_table_of_rooms_names_every_room() -> None:
    assert not {room for room in ROOMS if f"`{room}`" not in TABLE}


def test_the_table_of_rooms_names_the_packages_that_each_room_imports() -> None:
    named = {room: set(re.findall(r"[\w-]+", last)) for first, _, last in ROWS for room in re.findall(r"`(\w+)`", first)}
    others = next(set(re.findall(r"[\w-]+", last)) for first, _, last in ROWS if first == "the other files")
    for path in sorted((ROOT / "probes").rglob("*.py")):
        room = path.relative_to(ROOT / "probes").with_suffix("").parts[0]
        assert packages(path) <= named.get(room, others), f"{path.relative_to(ROOT)}: name its packages in the row of `{room}`"
    assert not {room for room in named if not list((ROOT / "probes").glob(f"{room}*"))}, "these rooms do not exist"


def test_every_file_that_the_page_names_exists() -> None:
    names = set(re.findall(r"`((?:probes|tests|docs|examples)/[\w./-]+)`", TEXT)) | set(re.findall(r" ((?:tests|docs)/[\w./-]+\.py)", TEXT))
    assert len(names) > 10
    assert not {name for name in names if not (ROOT / name).exists()}


def test_the_glossary_is_sorted() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\*", TEXT.partition("## Glossary")[2], flags=re.MULTILINE)
    assert words == sorted(words)
