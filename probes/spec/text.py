"""The texts of a spec: names, patterns, references to tensors, value paths, dtypes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from probes.errors import nearest
from probes.module_glob import Pattern, PatternError
from probes.signature import DTYPES
from probes.spec.when import once
from probes.value_path import ROOTS, Reference, ValuePath

LONGEST = 64
REFERENCED = ("input", "output")


def _pattern(text: str) -> str:
    if "${" in text:
        return text  # a variable without a value, which is told where variables are replaced
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
    if reference.value.root not in REFERENCED:
        message = "'{text}' names `{root}`; a reference names the `input` or `output` of a module, and stands for its gradient"
        raise PydanticCustomError("bad_reference", message, {"text": text, "root": reference.value.root})
    if not Pattern(_pattern(reference.module)).is_exact:
        message = "'{text}' is a reference and names one module; for a glob use hook `backward`, which sees the gradients of outputs"
        hint = f'write `hook: backward` and `modules: ["{reference.module}"]`'
        raise PydanticCustomError("bad_reference", message, {"text": text, "hint": hint})
    return f"{reference.module}:{reference.value}"


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


def _class(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        message = "'{text}' is not the name of a class; write a bare one such as Conv2d, or a dotted one such as torch.nn.Conv2d"
        raise PydanticCustomError("name", message, {"text": text})
    return text


def _dtype(name: str) -> str:
    if name not in DTYPES:
        message = "'{name}' is not a dtype; allowed: {known}"
        raise PydanticCustomError("dtype", message, {"name": name, "known": ", ".join(DTYPES), "hint": nearest(name, DTYPES)})
    return name


Name = Annotated[str, AfterValidator(_name)]
Once = AfterValidator(once)
Patterns = Annotated[tuple[Annotated[str, AfterValidator(_pattern)], ...], Field(strict=False), Once]
Tensors = Annotated[tuple[Annotated[str, AfterValidator(_tensor)], ...], Field(strict=False), Once]
Values = Annotated[tuple[Annotated[str, AfterValidator(_value)], ...], Field(strict=False), Once]
Dims = Annotated[tuple[Name, ...], Field(strict=False)]
Sinks = Annotated[tuple[Name, ...], Field(strict=False), Once]
Class = Annotated[str, AfterValidator(_class)]
Types = Annotated[tuple[Class, ...], Field(strict=False), Once]
Dtype = Annotated[str, AfterValidator(_dtype)]
