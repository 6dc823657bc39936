"""Do in an empty folder what the tutorials tell the reader to type; write what the commands printed back into them.

Usage: python docs/tutorial.py [NAME ...]     (`make docs`; tests/examples/test_tutorials.py does the same and compares)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).absolute().with_name("tutorials")
NEEDS = {"trainer": "transformers", "lightning": "pytorch_lightning", "nan": "sklearn", "gpt2": "transformers", "audit": "sklearn"}
BLOCK = re.compile(r"^```(python|yaml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w-]+\.(?:py|yaml))\n")
READER = "/home/you/tutorial"  # the folder of the reader
TEMPORARY = re.compile(rf"{re.escape(tempfile.gettempdir())}/tmp\w+")
INTERPRETER = re.compile(r"\S+/python[\d.]* -m probes")
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}


def page(name: str, folder: Path, search: str = "") -> str:
    """A tutorial as it has to be after everything in it was typed in a folder.

    Args:
        name: the tutorial.
        folder: an empty folder.
        search: folders that come first in the search for commands, as in PATH.
    """

    def replaced(found: re.Match[str]) -> str:
        language, text = found.groups()
        if language == "console":
            typed = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
            return f"```console\n{''.join(f'$ {command}{chr(10)}{printed(command, folder, search)}' for command in typed)}```"
        if file := NAMED.match(text):
            (folder / file[1]).write_text(text, encoding="utf-8")
        return found[0]

    return BLOCK.sub(replaced, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))


def printed(command: str, folder: Path, search: str) -> str:
    """What a command prints, with its errors.

    Raises:
        RuntimeError: it failed in another way than by a negative result (exit code 1).
    """
    path = os.pathsep.join(filter(None, [search, str(Path(sys.executable).parent), os.environ["PATH"]]))
    known = os.environ | QUIET | {"PATH": path, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"`{command}` ended with {done.returncode}:\n{done.stdout}")
    text = done.stdout.replace(str(folder), READER)
    text = INTERPRETER.sub("python -m probes", TEMPORARY.sub("/tmp/tmp0", text))
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


if __name__ == "__main__":
    for name in sys.argv[1:] or NEEDS:
        if find_spec(NEEDS[name]) is None:
            print(f"{name}.md: not done, because `{NEEDS[name]}` is not installed")
            continue
        with tempfile.TemporaryDirectory() as empty:
            (FOLDER / f"{name}.md").write_text(page(name, Path(empty)), encoding="utf-8")
