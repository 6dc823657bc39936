from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.pages import script
from tests.warm import programs

HASH = re.compile(r"\b[0-9a-f]{8,64}\b")
FRACTION = re.compile(r"-?\d+\.\d+(e[-+]\d+)?")
BARS = re.compile("[▁▂▃▄▅▆▇█·]+")


COUNTED = re.compile(r"\d+ (elements|ulp|differ)|cosine [\d.]+|max abs [\d.e-]+|at \[[\d, ]+\]|step \d+:")
DIVERGENCE = re.compile(r"(?<=first divergence\n)  epoch \d+, step \d+: .*\n.*\n.*\n")


def lasting(text: str) -> str:
    """A text without what depends on the time, the machine's arithmetic and the versions of packages."""
    text = DIVERGENCE.sub("  #\n", text)
    text = BARS.sub("#", FRACTION.sub("0.0", COUNTED.sub("#", HASH.sub("#", text))))
    return re.sub(r"0x\w+", "#", re.sub(r" +", " ", text))


def test_every_block_of_the_readme_runs_and_prints_the_text_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = script("readme")
    monkeypatch.setenv("WARM_PYTHON", str(programs.commands() / "python"))
    readme.BIN = os.pathsep.join([str(programs.commands()), readme.BIN])
    readme.prepare(tmp_path)
    for block in readme.blocks(readme.README.read_text(encoding="utf-8")):
        said = readme.execute(block, tmp_path)
        assert lasting(said) == lasting(block.text), "the README is out of date; run: make docs"
