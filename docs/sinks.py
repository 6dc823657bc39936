"""Run every block of docs/sinks.md on the digits example; write what the commands said back into it.

Usage: python docs/sinks.py     (tests/test_sinks_page.py runs the same blocks and compares)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import readme  # the script next to this one

PAGE = Path(__file__).with_name("sinks.md")


def page(folder: Path) -> str:
    """The whole page, as its blocks come out in a folder."""
    readme.prepare(folder)
    text = PAGE.read_text(encoding="utf-8")
    for block in readme.blocks(text):
        text = text.replace(f"```{block.language}\n{block.text}```", f"```{block.language}\n{readme.execute(block, folder)}```", 1)
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        PAGE.write_text(page(Path(name)), encoding="utf-8")
