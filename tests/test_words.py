"""The words of the project: a class name has one meaning, and what users read is plain technical English."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, parsed

WORN_OUT = (
    r"\b(?:is|are|was|were|be|been) told\b",
    r"\btells? (?:what|of|which|how|that)\b",
    r"\bwhat\s+there is\b",
    r"\bcomes? to (?:nothing|on|a|what)\b",
    r"\b(?:the|its|open) books\b",
    r"\bstands? (?:at|in|beside|for|there|where|so)\b",
    r"\banew\b",
    r"\bof (?:its|their|one's) own accord\b",
    r"\beach\s+how many\b",
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
    r"(?-i:(?<![a-z,] )(?<![a-z,]\n)\bOf (?:a|an|its|each|every|other|several|two|many|more|such|`[^`]+`|[A-Z][A-Za-z]+)\b)",
    r"(?<!there )\b(?:is|are) no (?!longer\b|more\b|fewer\b|less\b|such\b|event\b|[a-z]+ is\b)[a-z]+",
    r"\bbut for (?:a|an|the|its|their|that|those)\b",
    r"\b(?:every|each|any) (?:[a-z-]+ )?but (?:the|a|an|its|one|two)\b",
    r"\bby turns\b",
    r"\b(?:has|have|is|are) gone\b",
    r"\bjudges?\b",
    r"\b(?:a|an|the|its|one|that|those|in|is) (?:[a-z-]+ )?behind\b(?! (?:schedule|in time))|\bbehind (?:a|an|the|it|its|them)\b",
    r"(?<![-_\"])\bbeside (?:a|an|the|it|its|them|this|that|each|every|links|gradients)\b",
    r"\bknow(?:s|n)? of\b|\bis said (?:of|to|in)\b|\bare said (?:of|to|in)\b",
    r"\b(?:is|are|was|were) (?:not |only )?(?:waited for|asked for|looked at|looked for|gone on with)\b",
    r"\bstands? still\b",
    r"(?-i:[.;:] Who(?:ever)? [a-z]+s\b)",
    r"\bcomes? true\b|\bcame true\b",
    r"\bin silence\b|\bgoes silent\b",
    r"\bbelieves?\b|\bwears?\b|(?<!engine\.)(?<!def )\bhears?\b",
    r"\bowner lives\b|\b(?:run|process|node|owner|sealer|child|rank) (?:that |which )?(?:died|dies|lives|is dead|is alive)\b",
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

IN_NAMES = (
    *(pattern for pattern in IN_SOURCES if '"""' not in pattern),
    r"^what (?!does\b)|^whatever\b|^of\b",
    r"\bsays? so\b",
    r"\b(?:go|goes|went|going) on\b",
    r"\btold\b|\banew\b|\bours\b|\bof us\b|\bnobodys\b",
    r"\b(?:is|are) no(?:ne)?\b(?! longer)(?<!there is no)(?<!there are no)",
    r"\bbeside\b|\bbehind\b|\bgone\b|\bstands?\b|\bjudge[sd]?\b",
    r"\bstrangers?\b|\bhonest\b|\bdead\b(?! unit)|\bdied\b|\bbooks\b|\bspoilt\b",
    r"\bway (?:on|out)\b|\bwith what to\b",
    r"\bnot there\b|\bof (?:its|their) own\b",
)
"""Those that names of tests do not have: a name is a sentence with subject, verb and object."""

EXAMPLES = {
    "Of a wrong spec a line is printed.": "For a wrong spec, a line is printed.",
    "Such a file is no anchor.": "Such a file is not an anchor, and there is no other.",
    "The files are equal but for the last bit.": "The files are equal, but the last bit differs.",
    "Every segment but the last is whole.": "Every segment except the last is whole.",
    "A text that is\n    no number.": "A text that is\n    not a number.",
    "The variants run by turns.": "The variants alternate.",
    "The iterator is gone.": "The iterator was deleted.",
    "A rule judges numbers.": "A rule checks numbers.",
    "The bytes behind the header are read.": "The bytes after the header are read.",
    "A log beside the file.": "A log next to the file.",
    "All that is known of the model.": "All that is known about the model.",
    "A device is waited for.": "It waits for a device.",
    "Its clock stands still.": "Its clock does not advance.",
    "A list; Who shortens it hides a gap.": "A list; anyone who shortens it hides a gap.",
    "It drops a capture in silence.": "It drops a capture silently.",
    "The tool believes the file.": "The tool trusts the file.",
    "The owner lives on.": "The owner is running.",
    "What a spec comes to.": "The result of a spec.",
}
"""A sentence that has a worn-out turn -> the plain form, which has none."""


def any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all; a space also matches the end of a line. Where a group looks back, it is one character wide."""
    spaced = []
    for pattern in patterns:
        parts = re.split(r"(\(\?<[!=][^)]*\))", pattern)
        spaced.append("".join(part.replace(" ", r"\s" if part.startswith("(?<") else r"\s+") for part in parts))
    return re.compile("|".join(f"(?:{pattern})" for pattern in spaced), flags=re.IGNORECASE)


ANY = any_of(IN_SOURCES)
IN_A_TEXT = any_of(WORN_OUT)

IN_A_NAME = any_of(IN_NAMES)

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
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    return found


def test_a_class_name_has_one_meaning() -> None:
    homonyms = {name: files for name, files in classes().items() if len(files) > 1}
    assert not homonyms, "give one of the classes another name, also if it begins with an underscore"


def test_a_module_name_has_one_meaning() -> None:
    """A verb, a conformance kit or a kind is called as the module that does its work."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "probes").rglob("*.py")):
        inside = path.relative_to(ROOT / "probes")
        if inside.parts[0] not in ("commands", "testing", "transforms", "edits", "sinks") and path.name != "__init__.py":
            places[path.name].append(str(inside))
    known = {"code.py", "document.py", "epoch_weights.py", "run.py"}
    homonyms = {name: found for name, found in places.items() if len(found) > 1 and name not in known}
    assert not homonyms, "say in the name which of the two it is"


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_for_users_have_no_worn_out_turns(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = [f"line {text[: match.start()].count(chr(10)) + 1}: say {match[0]!r} plainly" for match in IN_A_TEXT.finditer(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("room", sorted({path.relative_to(ROOT).parts[1] for path in (ROOT / "probes").rglob("*.py")}))
def test_sources_have_no_worn_out_turns(room: str) -> None:
    found = []
    paths = (ROOT / "probes" / room).rglob("*.py") if not room.endswith(".py") else [ROOT / "probes" / room]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for match in ANY.finditer(text):
            found.append(f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}: say {match[0]!r} plainly")
    assert not found, "\n".join(sorted(found))


def test_names_of_tests_have_no_worn_out_turns() -> None:
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for name in re.findall(r"^ *def test_(\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            words = name.replace("_", " ")
            found |= {f"{path.relative_to(ROOT)}: {words}: say {match[0]!r} plainly" for match in IN_A_NAME.finditer(words)}
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize("sentence", EXAMPLES)
def test_a_worn_out_turn_is_found_and_its_plain_form_is_not(sentence: str) -> None:
    assert ANY.search(sentence)
    assert not ANY.search(EXAMPLES[sentence])


def test_every_noun_of_the_public_interface_is_in_the_glossary() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    glossary = text.partition("## Glossary")[2].partition("\n## ")[0]
    defined = {word.lower() for word in re.findall(r"^\| \*\*(.+?)\*\*", glossary, flags=re.MULTILINE)}
    wanted = {"spec", "plan", "probe", "binding", "capture", "series", "clock", "step", "epoch", "phase", "journal", "seal", "ledger"}
    assert wanted <= defined
