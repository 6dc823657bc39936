"""The words of the project: a class name has one meaning, and what users read is plain technical English."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

WORN_OUT = (
    r"\b(?:is|are|was|were|be|been) told\b",
    r"\btells? (?:what|of|which|how|that)\b",
    r"\bwhat there is\b",
    r"\bcomes? to (?:nothing|on|a|what)\b",
    r"\b(?:the|its|open) books\b",
    r"\bstands? (?:at|in|beside|for|there|where|so)\b",
    r"\banew\b",
    r"\bof (?:its|their|one's) own accord\b",
    r"\beach how many\b",
    r"\bhangs? (?:on|off)\b",
    r"\bkeeper\b|\bhanger\b|\boutlets?\b",
    r"\b(?-i:is none)\b",
    r"\bno [a-z]+ of that name\b",
    r"\bwhat (?:it|a spec) comes to\b",
    r"\bnotwithstanding\b",
    r"\bso manieth\b",
    r"\bwithout a word\b",
    r"\bis (?:not )?what (?:a|an) [a-z]+ is\b",
    r"\bof ours\b",
    r"\bone behind the other\b",
    r"\bmust come true\b",
    r"\b(?:key|value|line|kind) that stands\b",
    r"\b(?:that|where|what) (?:it|they) comes? from\b",
    r"\bno more than a [a-z]+ may\b|\bthan (?:a [a-z]+|it) may\b",
)
"""Turns of phrase that readers stumbled over; each has a plain form: "reports", "contains", "again", "counters"."""

IN_SOURCES = (
    *(pattern for pattern in WORN_OUT if "is none" not in pattern),
    r"\b(?:come|comes|came) to (?:its|their) end\b",
    r"\b(?:go|goes|went|going) on with\b|\bgoes on\b",
    r"\blets? go of\b",
    r"\bhears? of\b",
    r"\bin the place of\b",
    r"\b(?:None|null|empty|NaN|0|-1) where\b",
    r"\btakes? note\b",
    r"\blistens? no more\b",
    r"\bthe process's one\b",
    r"\bcounted from the end where\b|\balso where it is not known\b",
    r"\bwhere there (?:is|are) (?:one|none|no|several)\b",
    r"\bthe very function\b",
    r'"""(?-i:What|Who|Where) ',
)
"""Those that docstrings, comments and messages of the package do not have either; a docstring begins with a noun or a verb."""

ANY = re.compile("|".join(f"(?:{pattern})" for pattern in IN_SOURCES), flags=re.IGNORECASE)

GENERATED = {"torture.json"}
READ = [
    *PAGES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "tests" / "specs").rglob("*.txt")),
    *sorted((ROOT / "schemas").glob("*.json")),
]


def classes() -> dict[str, list[str]]:
    """Class name, without a leading underscore -> the files that define it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "probes").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    return found


def test_a_class_name_has_one_meaning() -> None:
    homonyms = {name: files for name, files in classes().items() if len(files) > 1}
    assert not homonyms, "give one of the classes another name, also if it begins with an underscore"


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_for_users_have_no_worn_out_turns(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for pattern in WORN_OUT:
        found = re.search(pattern, text, flags=re.IGNORECASE)
        line = text[: found.start()].count("\n") + 1 if found else 0
        assert found is None, f"line {line}: say {found[0]!r} plainly" if found else ""


@pytest.mark.parametrize("room", sorted({path.relative_to(ROOT).parts[1] for path in (ROOT / "probes").rglob("*.py")}))
def test_sources_have_no_worn_out_turns(room: str) -> None:
    found = []
    paths = (ROOT / "probes" / room).rglob("*.py") if not room.endswith(".py") else [ROOT / "probes" / room]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for match in ANY.finditer(text):
            found.append(f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}: say {match[0]!r} plainly")
    assert not found, "\n".join(sorted(found))


def test_every_noun_of_the_public_interface_is_in_the_glossary() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    glossary = text.partition("## Glossary")[2].partition("\n## ")[0]
    defined = {word.lower() for word in re.findall(r"^\| \*\*(.+?)\*\*", glossary, flags=re.MULTILINE)}
    wanted = {"spec", "plan", "probe", "binding", "capture", "series", "clock", "step", "epoch", "phase", "journal", "seal", "ledger"}
    assert wanted <= defined
