"""Run every Python block of docs/inside.md; write what it printed into the block of text that follows it.

Usage: python docs/inside.py     (tests/test_inside_page.py runs the same blocks and compares)
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import traceback
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("inside.md")
BLOCK = re.compile(r"```(python|yaml|text)(?: file=(\S+))?\n(.*?)```\n", re.DOTALL)


def page(folder: Path) -> str:
    """The whole page, as its blocks come out in a folder; they share one namespace."""
    names: dict[str, Any] = {"__name__": "page"}
    printed = ""
    text = PAGE.read_text(encoding="utf-8")

    def replaced(found: re.Match[str]) -> str:
        nonlocal printed
        language, name, code = found.groups()
        if language == "text":
            shown, printed = printed, ""
            return f"```text\n{shown}```\n"
        if name:
            (folder / name).write_text(code, encoding="utf-8")
        elif language == "python":
            printed = executed(code, names)
        return found[0]

    before = Path.cwd()
    os.chdir(folder)
    try:
        return BLOCK.sub(replaced, text)
    finally:
        os.chdir(before)


def executed(code: str, names: dict[str, Any]) -> str:
    """What a block prints, and the error that it ends with."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            exec(compile(code, "page.py", "exec"), names)
        except Exception as error:  # the page shows it
            out.write("".join(traceback.format_exception_only(error)))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        PAGE.write_text(page(Path(name)), encoding="utf-8")
