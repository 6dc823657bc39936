"""The reference is what the program says of itself, and completion works as it says there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probes.cli import verbs
from probes.error_codes import CODES
from tests.pages import script

PROGRAM = Path(sys.executable).with_name("probes")


def test_each_page_is_what_the_program_writes(tmp_path: Path) -> None:
    reference = script("reference")
    subprocess.run([sys.executable, reference.__file__, tmp_path], check=True)
    for name in reference.PAGES:
        assert (reference.FOLDER / name).read_text("utf-8") == (tmp_path / name).read_text("utf-8"), "run: make regenerate"


def test_no_other_page_exists_and_every_link_has_a_target() -> None:
    reference = script("reference")
    assert {path.name for path in reference.FOLDER.iterdir()} == set(reference.PAGES)
    for path in reference.FOLDER.iterdir():
        text = path.read_text("utf-8")
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-") for line in text.split("\n") if line.startswith("#")
        }
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([\w-]+))?\)", text):
            assert not target or (path.parent / target).exists(), target
            assert not anchor or anchor in headings, anchor


def test_every_verb_code_and_exit_code_has_its_place() -> None:
    reference = script("reference")
    assert set(re.findall(r"^### (\w+)$", reference.commands(), re.MULTILINE)) == set(verbs())
    assert re.findall(r"^### ([\w-]+)$", reference.codes(), re.MULTILINE) == list(CODES)
    assert set(reference.EXITS) == reference.exit_codes()


def complete(shell: str, *words: str) -> str:
    environment = os.environ | {"_PROBES_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_lines_for_start_up_files_are_those_that_click_understands(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("there is no bash to ask for its version")
    text = script("reference").COMPLETION
    assert f"_PROBES_COMPLETE={shell}_source probes" in text
    done = subprocess.run([PROGRAM], env=os.environ | {"_PROBES_COMPLETE": f"{shell}_source"}, capture_output=True, text=True, check=True)
    assert "_PROBES_COMPLETE" in done.stdout


def test_verbs_options_and_choices_complete() -> None:
    assert complete("bash", "probes", "ve").split() == ["plain,verify"]
    assert "plain,--resolved" in complete("bash", "probes", "check", "--re").split()
    assert complete("bash", "probes", "check", "--format", "gi").split() == ["plain,github"]
    assert complete("zsh", "probes", "fm").splitlines()[:2] == ["plain", "fmt"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_shell_takes_the_line() -> None:
    line = f'eval "$(_PROBES_COMPLETE=bash_source {PROGRAM})" && complete -p probes'
    done = subprocess.run(["bash", "--norc", "-c", line], capture_output=True, text=True, check=True)
    assert "-F" in done.stdout
