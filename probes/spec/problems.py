"""Everything that is wrong with a spec, in plain words and at its place in the YAML: errors of pydantic, and faults across keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from probes.error_codes import CODES
from probes.errors import Problem, closest, nearest
from probes.spec.compose import copy_places, lay_defaults, problem, substitute
from probes.spec.cross_checks.spec_rules import faults_of
from probes.spec.key_hints import HOOKS_MEANT, hint_for, misspelt
from probes.spec.models import VERSION
from probes.spec.partial import PartialSpec
from probes.spec.when import RANGES
from probes.spec.yaml.document import Document, Path, kind_of

TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "mapping_type": "a mapping",
}
MOST_CHOICES = 6
TEXT = "the text "
NAMED = ("probes", "sinks", "models", "rules", "vars")
BOUNDS = {
    "greater_than_equal": ("ge", "{} or more"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "{} or less"),
    "less_than": ("lt", "less than {}"),
}


def problems_of(document: Document) -> list[Problem]:
    """Everything that is wrong with a spec, in the order of its lines; faults across keys are reported together with those within them.

    Args:
        document: the document as it is written, without the values of variables and `defaults`; it is changed.
    """
    _correct(document)
    substitute(document)
    lay_defaults(document)
    if () in document.unreadable:
        return _sorted(document.problems)
    partial = PartialSpec(document)
    faults = [problem(document, fault.at, fault.code, fault.message, fault.hint, key=fault.key) for fault in faults_of(partial.spec)]
    return _sorted([*document.problems, *_translated(document, partial.entries), *faults])


def _correct(document: Document) -> None:
    """Report misspelt keys that hold further keys, and read these as those of the key that is meant."""
    for path, meant in misspelt(document.data):
        document.problems.append(_unknown_key(document, path))
        part: Any = document.data
        for word in path[:-1]:
            part = part[word]
        part[meant] = part.pop(path[-1])
        copy_places(document, document, part[meant], path, (*path[:-1], meant))


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(_once(problems), key=lambda found: (found.file, found.line, found.column, found.code))


def _once(problems: list[Problem]) -> list[Problem]:
    """Problems without repetition: one mistake in `defaults` appears in every probe."""
    return list({(found.code, found.file, found.line, found.column, found.message): found for found in problems}.values())


def _translated(document: Document, entries: Iterable[tuple[Path, Any]]) -> list[Problem]:
    """The problems that pydantic found.

    Args:
        document: the document of the spec.
        entries: the place of each error in the document, and its entry in `ValidationError.errors`.
    """
    found: list[_PydanticError] = []
    wrong_types: dict[Path, _PydanticError] = {}
    for path, entry in entries:
        error = _PydanticError(document, path, entry)
        if error.types and path in wrong_types:  # the value matches no member of a union
            wrong_types[path].types |= error.types
            continue
        found.append(error)
        if error.types:
            wrong_types[path] = error
    return [error.problem() for error in found]


def _unknown_key(document: Document, path: Path) -> Problem:
    """The problem of a key that its part does not have."""
    name, above = str(path[-1]), path[:-1]
    message = f"`{name}` is not a key of {_part(document, above)}"
    return problem(document, path, "unknown-key", message, hint_for(name, document.data, above), key=True)


def _part(document: Document, path: Path) -> str:
    """The name of a mapping in messages: its kind if it has one, else its key."""
    data: Any = document.data
    for word in path:
        data = data[word]
    kind = data.get("kind") if isinstance(data, dict) else None
    return f"`{kind if isinstance(kind, str) else _last(path)}`" if path else "a spec"


class _PydanticError:
    """One error of pydantic.

    Args:
        document: the document of the spec.
        path: its place.
        entry: its entry in `ValidationError.errors`.

    Attributes:
        types: the types that are allowed, if the value has another one.
    """

    def __init__(self, document: Document, path: Path, entry: Any) -> None:
        self.document = document
        self.kind: str = entry["type"]
        self.context: dict[str, Any] = entry.get("ctx", {})
        self.loc: tuple[Any, ...] = tuple(entry["loc"])
        self.path = (*path, *self.context.get("at", ()))
        self.value = entry.get("input")
        self.text: str = entry["msg"]
        self.types = dict.fromkeys([TYPES[self.kind]] if self.kind in TYPES else [])

    def problem(self) -> Problem:
        """The error as a problem."""
        if self.kind == "missing":
            return self._missing(str(self.loc[-1]))
        if self.kind == "extra_forbidden":
            return _unknown_key(self.document, self.path)
        return self._value()

    def _missing(self, name: str) -> Problem:
        message = f"key `{name}` is missing" + (f" in {_part(self.document, self.path)}" if self.path else "")
        hint = f"add `version: {VERSION}`" if name == "version" else f"add `{name}:`"
        found = problem(self.document, self.path, "missing-key", message, hint, key=True)
        return found.at(path=_dotted((*self.path, name)))

    def _value(self) -> Problem:
        name, given = _last(self.path), f"`{self._written()}`" if isinstance(self.value, float) else shown(self.value)
        if self.types:
            hint = _type_hint(TYPES[self.kind], self.value, name, self._written())
            return self._at("wrong-type", f"{_named(self.path)} must be {' or '.join(self.types)}, got {given}", hint)
        if self.kind == "literal_error":
            return self._choice(name)
        if self.kind in BOUNDS:
            key, words = BOUNDS[self.kind]
            return self._at("out-of-range", f"`{name}` must be {words.format(self.context[key])}, got {given}")
        if self.kind in ("too_short", "too_long"):
            least, most = self.context.get("min_length"), self.context.get("max_length")
            wanted = f"at least {least} needed" if self.kind == "too_short" else f"at most {most} allowed"
            return self._at("wrong-length", f"`{name}` has {self.context.get('actual_length')} members; {wanted}")
        code = self.kind.replace("_", "-")
        return self._at(code if code in CODES else "bad-value", self.text.removeprefix("Value error, "), str(self.context.get("hint", "")))

    def _written(self) -> str:
        """The value as YAML; a number as the file has it, in which `1e3` may be the name of a module."""
        mark = self.document.values.get(self.path) if isinstance(self.value, float) else None
        if mark is not None:
            return mark.source[mark.column - 1 :][: mark.width]
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)

    def _choice(self, name: str) -> Problem:
        expected = self.context["expected"].replace(" or ", ", ").replace("True", "true")  # pydantic gives them as one text only
        allowed, value = [part.strip().strip("'") for part in expected.split(",")], str(self.value)
        many = len(allowed) > MOST_CHOICES
        names = f"the nearest are {closest(value, allowed)}" if many else f"allowed: {', '.join(f'`{one}`' for one in allowed)}"
        return self._at(
            "bad-choice",
            f"`{name}` cannot be {shown(self.value).removeprefix(TEXT)}; {names}",
            HOOKS_MEANT.get(value) or nearest(value, allowed),
        )

    def _at(self, code: str, message: str, hint: str = "") -> Problem:
        return problem(self.document, self.path, code, message, hint, key="[key]" in self.loc)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _last(path: Path) -> str:
    """The key that names a value for a person: the last one, or the list's for an item."""
    return next((part for part in reversed(path) if isinstance(part, str)), "the spec")


def _named(path: Path) -> str:
    """The name of a value in a sentence."""
    return f"a member of `{_last(path)}`" if path and isinstance(path[-1], int) else f"`{_last(path)}`"


def shown(value: Any) -> str:
    """A value as a message shows it: short, and in backticks if it is a text."""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, dict | list | tuple):
        return kind_of(list(value) if isinstance(value, tuple) else value)
    text = str(value)
    return f"{TEXT}`{text if len(text) <= 60 else text[:57] + '...'}`" if isinstance(value, str) else f"`{text}`"


def _type_hint(wanted: str, value: Any, name: str, written: str) -> str:
    if wanted == "a mapping" and name in RANGES:
        return "write {at: [...]}, or some of {from, until, every, first}"
    if wanted == "a mapping" and isinstance(value, list):
        return "each one needs a name: write `NAME:` instead of `-`" if name in NAMED else "write its keys without `-` and without brackets"
    if wanted == "a list" and isinstance(value, dict):
        return "write [{...}], or start the line with `-`"
    if wanted == "a whole number" and isinstance(value, str | float) and re.fullmatch(r"-?\d{1,18}(\.0)?", str(value)):
        return f"write {str(value).removesuffix('.0')}" + (", without quotes" if isinstance(value, str) else "")
    if wanted == "a list" and isinstance(value, str):
        return f"write [{value}]" if not set(value) & set("*{}[],:&") else f'write ["{value}"]'
    if wanted == "a list" and isinstance(value, int | float) and not isinstance(value, bool):
        return f"write [{written}]"
    if wanted == "a text" and isinstance(value, int | float):
        return f'quote it: "{written}"'
    return ""
