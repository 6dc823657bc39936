"""What editors are told beyond the types of keys: patterns of texts, and which keys go together.

Each rule refuses only what `probes check` refuses too. What a part may still get from a spec that it extends is asked for at
the top alone, where it can be seen that nothing is extended.
"""

from __future__ import annotations

from typing import Any

from probes.signature import DTYPES
from probes.value_path import HOOK_OF

Schema = dict[str, Any]

VARIABLE = r"\$\{|"  # a text with a variable may become anything
MARKS = r"^$()+|\[\]"  # of regular expressions, which no glob has
ATOM = rf"\\.|\{{[^{{}}]*\}}|[^\\{{}}.*{MARKS}]"
LEVEL = rf"(?:\*\*|(?:{ATOM}|\*(?!\*))+)"
GLOB = VARIABLE + rf"^(?:{LEVEL}(?:\.{LEVEL})*)?$"
KEY = r'(?:"(?:[^"\\]|\\.)*"|[^."\[\]][^.\[\]]*)'
KEYED = [root for root in HOOK_OF if root not in ("grad", "data", "memory")]
VALUE = VARIABLE + rf"^(?:(?:{'|'.join(KEYED)})(?:\.{KEY})*|grad|data|memory)$"
TENSOR = VARIABLE + rf"^[^:{MARKS}]*$|^[^*?{{}}{MARKS}]*:(?:input|output)(?:\.{KEY})*$"
PLAIN_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
NAME = VARIABLE + PLAIN_NAME
CLASS = VARIABLE + r"^[^\s\d!-/:-@\[-^`{-~][^\s!-,/:-@\[-^`{-~-]*$"
RELATIVE = r"^(?!/)"
SOME = {"minItems": 1}
NONE = {"maxItems": 0}


def with_rules(schema: Schema) -> Schema:
    """The schema of a spec with the rules in it."""
    parts = schema["$defs"]
    for name, keys in TEXTS.items():
        properties = (parts[name] if name else schema)["properties"]
        for key, rule in keys.items():
            properties[key] = _joined(properties[key], rule)
    for name, rules in PARTS.items():
        parts[name]["allOf"] = rules
    return {**schema, "if": {"not": {"required": ["extends"]}}, "then": {"allOf": WHOLE}}


def _joined(node: Schema, rule: Schema) -> Schema:
    """A key's schema with more in it; the schema of a list's members gets that of its own."""
    items = {"items": {**node["items"], **rule["items"]}} if "items" in rule else {}
    return {**node, **rule, **items}


def _items(pattern: str, **more: Any) -> Schema:
    return {"items": {"pattern": pattern}, "uniqueItems": True, **more}


def _has(**keys: Schema) -> Schema:
    """A mapping that has all these keys, each of this kind."""
    return {"required": list(keys), "properties": keys}


def _never(condition: Schema) -> Schema:
    return {"not": condition}


def _if(condition: Schema, then: Schema) -> Schema:
    return {"if": condition, "then": then}


def _kind(name: str) -> Schema:
    return _has(kind={"const": name})


def _each_probe(rule: Schema) -> Schema:
    return {"properties": {"probes": {"additionalProperties": rule}}}


def _no_probe_has(key: str) -> Schema:
    return _each_probe(_never({"required": [key]}))


def _roots(hook: str) -> str:
    """Values that a hook sees."""
    return VARIABLE + rf"^(?:{'|'.join(root for root, needs in HOOK_OF.items() if needs == hook)})(?:\.|$)"


UNTRAINED = _has(phases={**SOME, "items": {"not": {"pattern": r"^train$|\$\{"}}})
"""A schedule without `train`, in which alone gradients are due."""

TEXTS: dict[str, dict[str, Schema]] = {
    "": {
        "name": {"pattern": NAME},
        "extends": {"items": {"pattern": RELATIVE}},
        "probes": {"propertyNames": {"pattern": PLAIN_NAME}},
        "sinks": {"propertyNames": {"pattern": PLAIN_NAME}},
        "models": {"propertyNames": {"pattern": PLAIN_NAME}},
        "tolerance": {"propertyNames": {"enum": list(DTYPES)}},
    },
    "Probe": {
        "modules": _items(GLOB),
        "exclude": _items(GLOB),
        "tensors": _items(TENSOR),
        "types": _items(CLASS),
        "values": _items(VALUE),
        "sinks": _items(NAME),
        "dims": {"items": {"pattern": NAME}},
        "model": {"pattern": NAME},
    },
    "Defaults": {"sinks": _items(NAME)},
    "Clock": {"model": {"pattern": NAME}},
    "When": {"phases": {"items": {"not": {"enum": ["all", ""]}}, "uniqueItems": True, **SOME}},
    "Range": {"at": {"uniqueItems": True, **SOME}},
}
"""What texts look like, by part and key; the part without a name is the spec itself."""

PARTS: dict[str, list[Schema]] = {
    "Range": [
        _if({"required": ["at"]}, {"maxProperties": 1}),
        _never({"required": ["first", "every"], "properties": {"every": {"const": 1}}}),
    ],
    "Select": [
        {
            "oneOf": [
                {"required": ["index"]},
                {"required": ["indices"]},
                {"anyOf": [{"required": [key]} for key in ("from", "until", "every")]},
            ]
        }
    ],
    "Probe": [
        _never(_has(modules=SOME, tensors=SOME)),
        _never(_has(hook={"const": "tensor"}, modules=SOME)),
        _never(_has(hook={"enum": ["forward", "pre-forward", "backward"]}, tensors=SOME)),
        *(
            _if(_has(hook={"const": hook}), {"properties": {"values": {"items": {"pattern": _roots(hook)}}}})
            for hook in ("tensor", "forward", "pre-forward", "backward")
        ),
        _if(_has(tensors=SOME), {"properties": {"values": {"items": {"pattern": _roots("tensor")}}, "types": NONE}}),
        _if(
            _has(modules=SOME),
            {"properties": {"values": {"items": {"not": {"pattern": r"^(?:grad|data)(?:\.|$)"}}}}, "not": {"required": ["stage"]}},
        ),
        _if(
            {"required": ["edit"]},
            {
                "not": {"anyOf": [{"required": ["sees"]}, _has(when={"required": ["trigger"]})]},
                "properties": {"transforms": NONE, "sinks": NONE, "values": {"items": {"not": {"pattern": "^memory"}}}},
            },
        ),
        _never(_has(values={"contains": {"const": "memory"}}, dims={})),
        _never(_has(values={"contains": {"const": "data"}}, tensors={"contains": {"pattern": r"^[^:$]+:"}})),
        _never(_has(values={**SOME, "items": {"const": "data"}}, stage={})),
        {"properties": {"transforms": {"contains": _kind("accumulate"), "minContains": 0, "maxContains": 1}}},
        _never(_has(when={"required": ["trigger"]}, transforms={"contains": _kind("accumulate")})),
        _never(_has(when=UNTRAINED, values={**SOME, "items": {"pattern": "^grad"}})),
    ],
}
"""Which keys of a part go together."""

WHOLE: list[Schema] = [
    {"required": ["version", "probes"]},
    _each_probe({"anyOf": [_has(modules=SOME), _has(tensors=SOME)]}),
    _each_probe({"anyOf": [{"required": ["hook"]}, _has(values=SOME), _has(tensors=SOME)]}),
    _each_probe(_never({**_has(when=UNTRAINED, hook={"const": "backward"}), "not": {"required": ["values"]}})),
    _if(_never(_no_probe_has("edit")), {"required": ["allow_edits"], "not": _has(allow_edits={"const": False})}),
    _if(_no_probe_has("edit"), _no_probe_has("sees")),
    _if(_has(models={"minProperties": 1}), _each_probe({"required": ["model"]})),
    _never(_has(probes={"minProperties": 1, "additionalProperties": _has(enabled={"const": False})})),
    _never(_has(limits={**_has(on_limit={"const": "raise"}), "not": {"required": ["bytes_per_epoch"]}})),
]
"""What a spec that extends nothing must have."""
