from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from probes.spec import Probe, Range, Spec, When, load_text
from probes.spec.models import Expect, Limits, Provenance, StepRule, Tolerance
from probes.value_path import HOOK_OF
from tests.pages import PAGES, ROOT, script


def test_the_extras_that_the_documents_name_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lists = (found for page in PAGES for found in re.findall(r"pip install '[^\[]*\[([\w,]+)\]'", page.read_text(encoding="utf-8")))
    named = {name for found in lists for name in found.split(",")}
    assert named
    assert named <= extras.keys()


def test_every_link_of_the_documents_has_a_target() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_spec_in_the_documents_is_valid(page: Path) -> None:
    for block in script("readme").blocks(page.read_text(encoding="utf-8")):
        if block.language == "yaml" and "version: 1" in block.text:
            load_text(block.text.encode(), page.name, page.parent)


@pytest.mark.parametrize("spec", sorted((ROOT / "examples").glob("*/*.yaml")), ids=lambda spec: spec.parent.name)
def test_every_spec_of_the_examples_is_valid(spec: Path) -> None:
    load_text(spec.read_bytes(), spec.name, spec.parent)


def test_the_reference_names_every_key() -> None:
    text = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    parts = (Spec, Probe, When, Range, StepRule, Expect, Limits, Provenance, Tolerance)
    keys = {field.alias or name for part in parts for name, field in part.model_fields.items()}
    missing = {word for word in {*keys, *HOOK_OF} if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)}
    assert not missing


def test_the_pages_that_show_parts_of_other_files_show_them_as_they_are() -> None:
    included = script("included")
    text = included.NOTHING.read_text(encoding="utf-8")
    assert text == included.nothing(text), "run: make regenerate"
    assert included.GLOSSARY.read_text(encoding="utf-8") == included.glossary(), "run: make regenerate"


def test_the_reference_of_kinds_has_the_docstrings_of_their_classes() -> None:
    kinds = script("kinds")
    assert kinds.PAGE.read_text(encoding="utf-8") == kinds.page(), "run: make regenerate"
