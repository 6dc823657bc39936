"""Handlers that catch everything: each has its reason in its line, so that nobody adds one without thinking of it."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.pages import ROOT


def broad(path: Path) -> list[tuple[int, str]]:
    """Number and text of the lines of a file that catch everything."""
    text = path.read_text(encoding="utf-8")
    caught = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler)]
    names = {None, "Exception", "BaseException"}
    return [(one.lineno, text.splitlines()[one.lineno - 1]) for one in caught if getattr(one.type, "id", one.type) in names]


def test_each_handler_that_catches_everything_has_a_reason() -> None:
    found = [(path, *one) for path in sorted((ROOT / "probes").rglob("*.py")) for one in broad(path)]
    assert found, "the search finds none of them"
    without = [f"{path.relative_to(ROOT)}:{number}" for path, number, line in found if len(line.partition("#")[2].split()) < 2]
    assert not without, "catch what can be raised, or give the reason in the line: " + ", ".join(without)


def test_each_mark_that_silences_a_check_has_a_reason() -> None:
    without = []
    for path in sorted([*(ROOT / "probes").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for mark in ("# " + "noqa:", "# " + "type: ignore["):
                rest = line.partition(mark)[2]
                if rest and len(rest.replace("#", " - ", 1).partition(" - ")[2].split()) < 2:
                    without.append(f"{path.relative_to(ROOT)}:{number}")
    assert not without, "give the reason behind the mark: " + ", ".join(without)
