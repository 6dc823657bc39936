from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from probes.errors import SpecError
from probes.registry import kinds
from probes.spec import Spec, load_text
from probes.spec.schema import spec_schema
from probes.spec.yaml.reader import read
from tests.regenerate import COMMAND, SCHEMA, SPECS, schema_text

VALID = sorted((SPECS / "valid").glob("*.yaml"))
SHAPES = (
    "unknown-key",
    "hook-backwards",
    "modules-a-text",
    "every-true",
    "every-zero",
    "transform-typo",
    "version-9",
    "probes-a-list",
    "clock-step",
    "factor-true",
    "factor-a-text",
)


@pytest.fixture(scope="module")
def validator() -> Any:
    return Draft202012Validator(spec_schema())


def test_the_schema_on_disk_is_that_of_the_models() -> None:
    assert SCHEMA.read_text("utf-8") == schema_text(), f"run: {COMMAND}"


def test_the_printed_schema_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(spec_schema())


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_every_valid_spec_passes_as_it_is_written(path: Path, validator: Any) -> None:
    assert [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text("utf-8")))] == []


@pytest.mark.parametrize("case", SHAPES)
def test_wrong_shapes_fail_in_an_editor_too(case: str, validator: Any) -> None:
    assert not validator.is_valid(yaml.safe_load((SPECS / "invalid" / f"{case}.yaml").read_text("utf-8")))


def test_every_key_and_every_kind_is_described() -> None:
    schema = spec_schema()
    assert set(schema["properties"]) == {*Spec.model_fields, "extends", "vars"}
    for name, part in {"Spec": schema, **schema["$defs"]}.items():
        for key, field in part.get("properties", {}).items():
            assert key == "kind" or "description" in field, f"{name}.{key}"
    tags = {part["properties"]["kind"].get("const") for part in schema["$defs"].values() if "kind" in part.get("properties", {})}
    assert {*kinds("transform"), *kinds("edit"), *kinds("sink")} <= tags


def test_a_variable_may_replace_numbers_booleans_and_choices(validator: Any) -> None:
    probe = {"hook": "${hook}", "modules": ["a"], "enabled": "${on}", "when": {"steps": {"every": "${n}"}}}
    assert validator.is_valid({"version": 1, "probes": {"acts": probe}})
    probe["enabled"] = "often"
    assert not validator.is_valid({"version": 1, "probes": {"acts": probe}})


def test_a_spec_that_extends_another_needs_no_version(validator: Any) -> None:
    assert validator.is_valid({"extends": ["common.yaml"]})
    assert not validator.is_valid({"probes": {"acts": {"hook": "forward", "modules": ["a"]}}})


WORDS = sorted(
    {word for path in VALID for word in re.findall(r"[\w.-]+", path.read_text("utf-8"))} | {"0", "1", "-1", "2.5", "true", '"x"'}
)


@settings(max_examples=300)
@given(path=st.sampled_from(VALID), place=st.integers(0, 10**6), word=st.sampled_from(WORDS))
def test_the_schema_accepts_every_spec_that_check_accepts(path: Path, place: int, word: str, validator: Any) -> None:
    tokens = re.findall(r"[\w.-]+|\s+|.", path.read_text("utf-8"))
    tokens[place % len(tokens)] = word
    text = "".join(tokens).encode()
    try:
        load_text(text, path.name, path.parent)
    except SpecError:
        return
    assert [error.message for error in validator.iter_errors(read(text, path.name).data)] == []


def test_no_null_is_accepted(validator: Any) -> None:
    assert not validator.is_valid({"version": 1, "probes": {"acts": {"hook": None, "modules": ["a"]}}})
