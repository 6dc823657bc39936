"""The tutorials: everything that they tell the reader to type is typed in an empty folder, and prints what they say."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pages import ROOT, script
from tests.test_readme import lasting
from tests.warm import programs

tutorial = script("tutorial")
NAMES = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.name != "README.md")
QUICK = ("nan",)  # the others import a framework, or start interpreters, which takes longer than all their commands
SERVER = re.compile(r"the runs differ in\n  code\.modules\.\S*server\.py.*\n\n")  # `replay` starts an interpreter, and not a fork
TIMES = re.compile(r"\b\d{8}T\d{6}Z-\w{4}\b|'train_(?:runtime|samples_per_second|steps_per_second)': '[^']*'")


def same(text: str) -> str:
    """A tutorial without what depends on the time, on the machine and on rounding."""
    return lasting(TIMES.sub("#", SERVER.sub("", text)))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.torture) for name in NAMES])
def test_a_tutorial_prints_what_it_says(name: str, tmp_path: Path) -> None:
    needed = tutorial.NEEDS[name]
    if find_spec(needed) is None:
        pytest.skip(f"`{needed}` is not installed; the extra of the tutorial brings it")
    page = (tutorial.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert same(tutorial.page(name, tmp_path, str(programs.commands()))) == same(page), "the tutorial is out of date; run: make docs"


def test_the_table_of_tutorials_names_each() -> None:
    table = (tutorial.FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\w+)\.md\)", table)) == sorted(NAMES) == sorted(tutorial.NEEDS)
