"""The texts of a spec: names, patterns, references to tensors, value paths, dtypes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from probes.errors import nearest
from probes.pattern import Pattern, PatternError
from probes.signature import DTYPES
from probes.value import ROOTS, Reference, ValuePath

LONGEST = 64


def _pattern(text: str) -> str:
    found = next((mark for mark in "^$()+|[]" if mark in text), None)
    if found:
        message = "'{text}' has the character '{found}' of a regular expression; patterns are globs such as encoder.layers.*"
        hint = "alternatives are written {a,b} or {0..9}" if found in "|[]" else ""
        raise PydanticCustomError("pattern", message, {"text": text, "found": found, "hint": hint})
    try:
        Pattern(text)
    except PatternError as error:
        raise PydanticCustomError("pattern", "{why}", {"why": str(error)}) from None
    return text


def _tensor(text: str) -> str:
    if ":" not in text:
        return _pattern(text)
    try:
        reference = Reference.parse(text)
    except ValueError as error:
        raise _no_value(error, text.rpartition(":")[2]) from None
    return f"{_pattern(reference.module)}:{reference.value}"


def _value(text: str) -> str:
    try:
        return str(ValuePath.parse(text))
    except ValueError as error:
        raise _no_value(error, text) from None


def _no_value(error: ValueError, text: str) -> PydanticCustomError:
    root = text.partition(".")[0]
    hint = "" if root in ROOTS or "[" in root else nearest(root, ROOTS)
    return PydanticCustomError("value_path", "{why}", {"why": str(error), "hint": hint})


def _name(text: str) -> str:
    good = text[:1].isalpha() and text.isascii() and all(c.isalnum() or c in "_-" for c in text)
    if not good or len(text) > LONGEST:
        message = "name '{text}' may hold only letters, digits, _ and -, must start with a letter and has at most {most} characters"
        raise PydanticCustomError("name", message, {"text": text, "most": LONGEST})
    return text


def _dtype(name: str) -> str:
    if name not in DTYPES:
        message = "'{name}' is not a dtype; allowed: {known}"
        raise PydanticCustomError("dtype", message, {"name": name, "known": ", ".join(DTYPES), "hint": nearest(name, DTYPES)})
    return name


Name = Annotated[str, AfterValidator(_name)]
Patterns = Annotated[tuple[Annotated[str, AfterValidator(_pattern)], ...], Field(strict=False)]
Tensors = Annotated[tuple[Annotated[str, AfterValidator(_tensor)], ...], Field(strict=False)]
Values = Annotated[tuple[Annotated[str, AfterValidator(_value)], ...], Field(strict=False)]
Dims = Annotated[tuple[Name, ...], Field(strict=False)]
Sinks = Annotated[tuple[Name, ...], Field(strict=False)]
Dtype = Annotated[str, AfterValidator(_dtype)]
