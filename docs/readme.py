"""Run every block of the README in an empty folder; write what the commands said, and a picture of it, back into the docs.

Usage: python docs/readme.py     (tests/test_readme.py runs the same blocks and compares)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "picture.svg"
SHOWN = ("probes run --out runs/a probe.yaml train.py", "probes show runs/a channels", "probes diff runs/a runs/b")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
WIDTH = 124
BIN = str(Path(sys.executable).parent)  # where `probes` and `python` are


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        language: the word behind the fence.
        text: the lines between the fences.
    """

    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(*found.groups()) for found in FENCE.finditer(text)]


def prepare(folder: Path) -> None:
    """What a reader of the README has before the first command."""
    shutil.copyfile(ROOT / "examples" / "digits" / "train.py", folder / "train.py")


def execute(block: Block, folder: Path) -> str:
    """Run one block and return it as it would have to stand in the page."""
    if block.language == "yaml":
        name = block.text.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(block.text, encoding="utf-8")
    elif block.language == "console":
        return "".join(f"$ {command}\n{run(command, folder)}" for command in commands(block))
    elif block.language == "python":
        (folder / "block.py").write_text(block.text, encoding="utf-8")
        run("python block.py", folder)
    elif block.language == "pycon":
        (folder / "block.txt").write_text(block.text, encoding="utf-8")
        run("python -W error -m doctest block.txt", folder)
    elif block.language != "sh":
        raise ValueError(f"a block of `{block.language}` is in the README, and nothing here runs it")
    return block.text


def commands(block: Block) -> Iterator[str]:
    """The commands of a console block."""
    return (line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ "))


def run(command: str, folder: Path, **environment: str) -> str:
    """The output of a command, errors and all, in the order in which it was written.

    Raises:
        RuntimeError: it failed; `probes diff` may end with 1, which says that the runs differ.
    """
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    known = os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": str(WIDTH)}
    known |= {"OMP_NUM_THREADS": "2"} | environment  # the page compares with a run on one thread
    done = subprocess.run(
        command, shell=True, cwd=folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode > (1 if command.startswith("probes diff") else 0):
        raise RuntimeError(f"`{command}` ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def draw(folder: Path) -> None:
    """Run the commands of the picture in colour and draw the terminal; `runs/b` is there already."""
    shutil.rmtree(folder / "runs" / "a")
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)
    for command in SHOWN:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(run(command, folder, FORCE_COLOR="1", NO_COLOR="")))
    PICTURE.write_text(FONTS.sub("", console.export_svg(title="probes", unique_id="probes")), encoding="utf-8")


def refresh() -> None:
    """Write the README's outputs and its picture anew."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        text = README.read_text(encoding="utf-8")
        for block in blocks(text):
            text = text.replace(f"```{block.language}\n{block.text}```", f"```{block.language}\n{execute(block, folder)}```", 1)
        README.write_text(text, encoding="utf-8")
        draw(folder)


if __name__ == "__main__":
    refresh()
