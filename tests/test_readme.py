from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from probes.registry import kinds
from probes.spec import Probe, Range, Spec, When, load_text
from probes.spec.models import Clock, Expect, Limits, Provenance, Tolerance
from probes.value import HOOK_OF

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]
HASH = re.compile(r"\b[0-9a-f]{8,64}\b")
FRACTION = re.compile(r"-?\d+\.\d+(e[-+]\d+)?")
BARS = re.compile("[▁▂▃▄▅▆▇█·]+")


@pytest.fixture(scope="module")
def readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "docs" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lasting(text: str) -> str:
    """A text without what depends on the time, the machine's arithmetic and the versions of packages."""
    text = BARS.sub("#", FRACTION.sub("0.0", HASH.sub("#", text)))
    return re.sub(r"0x\w+", "#", re.sub(r" +", " ", re.sub(r"\d+ (elements|ulp)", r"N \1", text)))


def test_every_block_of_the_readme_runs_and_says_what_it_says_there(readme: ModuleType, tmp_path: Path) -> None:
    readme.prepare(tmp_path)
    for block in readme.blocks(readme.README.read_text(encoding="utf-8")):
        said = readme.execute(block, tmp_path)
        assert lasting(said) == lasting(block.text), "the README is out of date; write it anew with `make docs`"


def test_the_extras_that_the_documents_name_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lists = (found for page in PAGES for found in re.findall(r"pip install '[^\[]*\[([\w,]+)\]'", page.read_text(encoding="utf-8")))
    named = {name for found in lists for name in found.split(",")}
    assert named
    assert named <= extras.keys()


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_spec_in_the_documents_is_one(readme: ModuleType, page: Path) -> None:
    for block in readme.blocks(page.read_text(encoding="utf-8")):
        if block.language == "yaml":
            load_text(block.text.encode(), page.name, page.parent)


def test_the_reference_names_every_key_and_kind() -> None:
    text = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    parts = (Spec, Probe, When, Range, Clock, Expect, Limits, Provenance, Tolerance)
    keys = {field.alias or name for part in parts for name, field in part.model_fields.items()}
    missing = {word for word in {*keys, *kinds("transform"), *HOOK_OF} if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)}
    assert not missing
