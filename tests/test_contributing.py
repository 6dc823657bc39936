"""CONTRIBUTING.md shows files of the repository; they are the real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probes.registry import KINDS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SHOWN = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", TEXT, flags=re.DOTALL))


@pytest.mark.parametrize("name", SHOWN)
def test_a_shown_file_is_the_real_one(name: str) -> None:
    assert SHOWN[name] == (ROOT / name).read_text(), f"copy {name} into CONTRIBUTING.md below its `file:` mark"


def test_the_shown_registry_line_is_the_real_one() -> None:
    assert f'"abs": "{KINDS["transform"]["abs"]}",' in TEXT
