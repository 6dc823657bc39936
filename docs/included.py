"""Write what pages of docs show of other files: messages of the tests' specs, reasons of skipped values, and the glossary.

`make regenerate` does it; tests/test_documents.py compares.
"""

from __future__ import annotations

import re
from pathlib import Path

from probes.hooks.capture.account import REASONS

ROOT = Path(__file__).absolute().parents[1]
NOTHING = ROOT / "docs" / "nothing.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
UNFIT = ROOT / "tests" / "specs" / "unfit"
SAID = re.compile(r"(<!-- said: ([\w-]+) -->\n```text\n).*?(```)", re.DOTALL)
TABLE = re.compile(r"(<!-- reasons -->\n).*?(<!-- end of reasons -->)", re.DOTALL)
HEAD = "# Glossary\n\nWritten by `make regenerate` from [Contributing](../CONTRIBUTING.md#glossary).\n\n"


def nothing(text: str) -> str:
    """The page about captures that are missing, with each message as `probes` prints it, and every reason of an account."""
    shown = SAID.sub(lambda found: f"{found[1]}{message(found[2])}{found[3]}", text)
    rows = "".join(f"| {reason} | {meaning} |\n" for reason, meaning in REASONS.items())
    return TABLE.sub(lambda found: f"{found[1]}| reason | meaning |\n|---|---|\n{rows}{found[2]}", shown)


def message(name: str) -> str:
    """What is printed of a spec of the tests, without the closing count."""
    text = (UNFIT / f"{name}.txt").read_text(encoding="utf-8").replace(f"{name}.yaml", "probe.yaml")
    return text.partition("\n\n")[0].rstrip("\n") + "\n"


def glossary() -> str:
    """The page of the terms: the table of CONTRIBUTING.md."""
    part = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Glossary\n\n")[2].partition("\n## ")[0]
    return HEAD + part.strip() + "\n"


def write() -> None:
    """Write both pages."""
    NOTHING.write_text(nothing(NOTHING.read_text(encoding="utf-8")), encoding="utf-8")
    GLOSSARY.write_text(glossary(), encoding="utf-8")


if __name__ == "__main__":
    write()
