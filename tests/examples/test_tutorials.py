"""The tutorials: everything that they tell the reader to type is typed in an empty folder, and prints what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pages import ROOT, script
from tests.test_readme import lasting
from tests.warm import programs

tutorial = script("tutorial")
NAMES = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.name != "README.md")
TIMES = re.compile(r"'train_(?:runtime|samples_per_second|steps_per_second)': '[^']*'")
IMPORTED = ("transformers.models.gpt2.modeling_gpt2", "transformers.trainer") if find_spec("transformers") else ()


def same(text: str) -> str:
    """A tutorial without what depends on the time, on the machine and on rounding."""
    return lasting(TIMES.sub("#", text))


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    """`python` and `probes` in forks of a process that has imported what most tutorials import."""
    with programs.commands_with(*IMPORTED) as folder:
        yield folder


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_prints_what_it_says(name: str, tmp_path: Path, commands: Path) -> None:
    needed = tutorial.NEEDS[name]
    if find_spec(needed) is None:
        pytest.skip(f"`{needed}` is not installed; the extra of the tutorial brings it")
    page = (tutorial.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert same(tutorial.page(name, tmp_path, str(commands))) == same(page), "the tutorial is out of date; run: make docs"


def test_the_table_of_tutorials_names_each() -> None:
    table = (tutorial.FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\w+)\.md\)", table)) == sorted(NAMES) == sorted(tutorial.NEEDS)
