"""Run the program of docs/reading.md that trains a classifier on captures, and write what it printed back into the page.

Usage: python docs/probing.py     (tests/reader/samples/test_probing_page.py runs the same program)
"""

from __future__ import annotations

import io
import re
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

PAGE = Path(__file__).absolute().with_name("reading.md")
PROGRAM = re.compile(r"(<!-- run: probing -->\n```python\n(.*?)```\n\n```text\n)(.*?)(```)", re.DOTALL)


def printed(folder: Path) -> str:
    """What the program prints in a folder."""
    found = PROGRAM.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, f"{PAGE.name} has no such program"
    out = io.StringIO()
    with chdir(folder), redirect_stdout(out):
        exec(compile(found[2], PAGE.name, "exec"), {"__name__": "__main__"})
    return out.getvalue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        text = printed(Path(name))
    PAGE.write_text(PROGRAM.sub(lambda found: found[1] + text + found[4], PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(text, end="")
