"""Mistakes that an editor finds with the schema: all that a schema can express; a list has the others."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from probes.errors import SpecError
from probes.spec import load_spec
from probes.spec.schema import spec_schema
from tests.regenerate import SPECS

CASES = sorted((SPECS / "invalid").glob("*.yaml"))
LOST_IN_READING = "gone once YAML has been read"
OTHER_FILES = "depends on other files"
SEVERAL_KEYS = "compares several keys, which `probes check` does"
ARITHMETIC = "compares numbers"
LANGUAGE = "a language of its own within a text"

BEYOND = {
    "anchor": LOST_IN_READING,
    "merge-key": LOST_IN_READING,
    "duplicate-key": LOST_IN_READING,
    "tag": LOST_IN_READING,
    "invisible-character": LOST_IN_READING,
    "missing-file": OTHER_FILES,
    "extends-cycle": OTHER_FILES,
    "einops-axes": LANGUAGE,
    "einops-pattern": LANGUAGE,
    "einops-reduction": LANGUAGE,
    "function-name": LANGUAGE,
    "not-last": SEVERAL_KEYS,
    "gather-on-some-ranks": SEVERAL_KEYS,
    "empty-range": ARITHMETIC,
    "all-disabled": SEVERAL_KEYS,
    "data-of-value": SEVERAL_KEYS,
    "edits-not-allowed": SEVERAL_KEYS,
    "hook-and-place": SEVERAL_KEYS,
    "hook-and-value": SEVERAL_KEYS,
    "no-effect": SEVERAL_KEYS,
    "no-hook": SEVERAL_KEYS,
    "no-model": SEVERAL_KEYS,
    "no-place": SEVERAL_KEYS,
    "one-selection": SEVERAL_KEYS,
    "wrong-comparison": SEVERAL_KEYS,
    "range": SEVERAL_KEYS,
    "two-places": SEVERAL_KEYS,
    "value-and-place": SEVERAL_KEYS,
    "two-files": SEVERAL_KEYS,
    "unknown-model": SEVERAL_KEYS,
    "unknown-sink": SEVERAL_KEYS,
    "mask-without-call": SEVERAL_KEYS,
    "rule-bounds": ARITHMETIC,
    "unknown-number": SEVERAL_KEYS,
    "unknown-probe": SEVERAL_KEYS,
    "unknown-variable": SEVERAL_KEYS,
    "unused-variable": SEVERAL_KEYS,
}
"""Codes of which a schema cannot catch every case, and why."""

CASES_BEYOND = {
    "many-digits": LOST_IN_READING,
    "infinite": "JSON knows no such number",
    "phase-no": "`no` is a text to an editor, and a phase may have any name",
    "leading-zero": LOST_IN_READING,
    "space-missing-before-brackets": LOST_IN_READING,
    "version-1.0": "1.0 is 1 to a schema",
    "extends-broken": OTHER_FILES,
    "edit-source": "may be completed by what the spec extends",
    "pattern-counts-down": ARITHMETIC,
    "pattern-too-many": ARITHMETIC,
    "plugin-not-known": "an installed plug-in may bring it",
    "transform-os-system": "an installed plug-in may bring it",
    "variable-of-wrong-type": SEVERAL_KEYS,
}
"""Cases of codes that a schema catches elsewhere."""


class Editor(yaml.SafeLoader):
    """Reads YAML 1.2 with its core schema, as the language server of editors does."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own place for it


for tag, pattern in (
    ("bool", r"true|True|TRUE|false|False|FALSE"),
    ("null", r"~|null|Null|NULL|"),
    ("int", r"[-+]?[0-9]+"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
):
    Editor.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), None)


def as_json(data: Any) -> Any:
    """The data that a schema gets: every key is a text."""
    if isinstance(data, dict):
        return {str(key): as_json(value) for key, value in data.items()}
    return [as_json(value) for value in data] if isinstance(data, list) else data


@pytest.fixture(scope="module")
def validator() -> Any:
    return Draft202012Validator(spec_schema())


def codes(path: Path) -> set[str]:
    with chdir(path.parent), pytest.raises(SpecError) as caught:
        load_spec(path.name)
    return {problem.code for problem in caught.value.problems}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_an_editor_catches_every_mistake_that_a_schema_can_express(path: Path, validator: Any) -> None:
    try:
        data = as_json(yaml.load(path.read_bytes(), Editor))
    except (yaml.YAMLError, ValueError):
        return  # the editor's own reader complains
    caught = not validator.is_valid(data)
    beyond = path.stem in CASES_BEYOND or codes(path) & set(BEYOND)
    assert caught or beyond, f"the schema accepts {path.stem}"
    assert not (caught and path.stem in CASES_BEYOND), f"{path.stem} is caught now: take it off the list"


def test_the_lists_contain_only_existing_cases() -> None:
    assert set(CASES_BEYOND) <= {path.stem for path in CASES}
    assert set(BEYOND) <= {code for path in CASES for code in codes(path)}


def test_a_kind_with_a_dot_may_come_from_a_plug_in(validator: Any) -> None:
    probe = {"hook": "forward", "modules": ["a"], "transforms": [{"kind": "acme.above", "threshold": 1}]}
    spec = {"version": 1, "probes": {"acts": probe}, "sinks": {"acme": {"kind": "acme.sink"}}}
    assert validator.is_valid(spec)
    assert not validator.is_valid({**spec, "sinks": {"acme": {"kind": "acme"}}})


def test_a_part_of_what_extends_another_may_be_incomplete(validator: Any) -> None:
    spec = {"extends": ["base.yaml"], "probes": {"acts": {"when": {"steps": {"first": 1}}}}}
    assert validator.is_valid(spec)
    assert not validator.is_valid({"probes": spec["probes"]})
