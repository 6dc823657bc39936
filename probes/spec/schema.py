"""The JSON Schema of a spec, for editors: as a person writes it, before variables and defaults are applied."""

from __future__ import annotations

import json
from typing import Any

from probes.spec.models import VERSION, Spec

DRAFT = "https://json-schema.org/draft/2020-12/schema"
VARIABLE = {"type": "string", "pattern": r"^\$\{[^}]+\}$", "description": "a variable of `vars`"}
REFERENCE = {"$ref": "#/$defs/Variable"}
REPLACEABLE = ("integer", "number", "boolean")
NAMED = ("properties", "$defs")
LEFT_OUT = ("default", "title", "discriminator")  # editors would insert defaults; the last is not a keyword of JSON Schema


def spec_schema() -> dict[str, Any]:
    """The JSON Schema, draft 2020-12."""
    schema = _node(Spec.model_json_schema(by_alias=True))
    del schema["required"]  # everything may come from an extended file
    parts = {name: _tagged(part) for name, part in schema["$defs"].items()}
    whole = {
        "$schema": DRAFT,
        "title": f"probes, spec version {VERSION}",
        **schema,
        "$defs": {**parts, "Variable": VARIABLE},
        "properties": _composed(schema["properties"]),
    }
    return {**whole, "if": {"not": {"required": ["extends"]}}, "then": {"required": ["version", "probes"]}}


def _composed(properties: dict[str, Any]) -> dict[str, Any]:
    """The keys of a spec, and those that composition removes."""
    plain = {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean")]}
    file = {"type": "string", "pattern": r"^(?!/)"}
    names = {"description": "files or presets that this spec extends", "type": "array", "items": file}
    variables = {"description": "values that texts use as `${name}`", "type": "object", "additionalProperties": plain}
    version = {"description": properties["version"]["description"], "const": VERSION}
    return {**properties, "version": version, "extends": names, "vars": variables}


def _tagged(part: dict[str, Any]) -> dict[str, Any]:
    """A part with a required `kind`, if it has one."""
    required = part.get("required", [])
    return {**part, "required": ["kind", *required]} if "kind" in part["properties"] and "kind" not in required else part


def _node(node: Any) -> Any:
    """A schema without nulls, in which a variable may replace a number, a boolean or a choice."""
    if isinstance(node, list):
        return [_node(member) for member in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _named(value) if key in NAMED else _node(value) for key, value in node.items() if key not in LEFT_OUT}
    if node.get("type") in REPLACEABLE or ("enum" in node and node.get("type") == "string"):
        about = {key: kept.pop(key) for key in ("description",) if key in kept}
        return {**about, "anyOf": [kept, REFERENCE]}
    return _flat(kept) if "anyOf" in kept else kept


def _named(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: _node(part) for name, part in parts.items()}


def _flat(union: dict[str, Any]) -> dict[str, Any]:
    """A union without nulls, nested unions and repetition; its only member if there is one."""
    members: list[Any] = []
    for member in union.pop("anyOf"):
        for one in member["anyOf"] if set(member) == {"anyOf"} else [member]:
            if one != {"type": "null"} and one not in members:
                members.append(one)
    return {**union, "anyOf": members} if len(members) > 1 else {**union, **members[0]}


if __name__ == "__main__":
    print(json.dumps(spec_schema(), indent=2, ensure_ascii=False))
