"""The texts of a spec: names, globs, references to tensors, value paths, dtypes, amounts of bytes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from probes.errors import closest, nearest
from probes.module_glob import GlobError, ModuleGlob
from probes.signature import DTYPES
from probes.value_path import ROOTS, WITHOUT_KEYS, OperationName, Reference, ValuePath

LONGEST = 64
REFERENCED = ("input", "output")
UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

AMOUNT = rf"\$\{{|^ *unlimited *$|^ *[0-9]*\.?[0-9]* +(?:{'|'.join(UNITS)}) *$"


# Patterns for editors; each accepts every text that the validators below accept.
VARIABLE = r"\$\{|"  # a text with a variable may become anything
MARKS = r"^$()+|\[\]"  # characters of regular expressions that no glob has
ATOM = rf"\\.|\{{[^{{}}]*\}}|[^\\{{}}.*{MARKS}]"
LEVEL = rf"(?:\*\*|(?:{ATOM}|\*(?!\*))+)"
GLOB = VARIABLE + rf"^(?:{LEVEL}(?:\.{LEVEL})*)?$"
KEY = r'(?:"(?:[^"\\]|\\.)*"|[^."\[\]][^.\[\]]*)'
KEYED = [root for root in ROOTS if root not in WITHOUT_KEYS]
VALUE = VARIABLE + rf"^(?:(?:{'|'.join(KEYED)})(?:\.{KEY})*|{'|'.join(WITHOUT_KEYS)})$"
TENSOR = VARIABLE + rf"^[^:{MARKS}]*$|^[^*?{{}}{MARKS}]*:(?:input|output)(?:\.{KEY})*$"
OPERATION = VARIABLE + r"^(?:torch\.(?:[^\W\d]\w*\.)*)?[^\W\d]\w*(?:\[\d+\])?$"
PLAIN_NAME = rf"^[A-Za-z][A-Za-z0-9_-]{{0,{LONGEST - 1}}}$"
CLASS = VARIABLE + r"^[^\s\d!-/:-@\[-^`{-~][^\s!-,/:-@\[-^`{-~-]*$"
NAMED = Field(json_schema_extra={"propertyNames": {"pattern": PLAIN_NAME}})
DTYPED = Field(json_schema_extra={"propertyNames": {"enum": [*DTYPES]}})


def _pattern(text: str) -> str:
    if "${" in text:
        return text  # a variable without a value is reported when variables are replaced
    found = next((mark for mark in "^$()+|[]" if mark in text), None)
    if found:
        message = "`{text}` contains `{found}`, a character of regular expressions; write a glob such as `encoder.layers.*`"
        hint = "alternatives are written {a,b} or {0..9}" if found in "|[]" else ""
        raise PydanticCustomError("pattern", message, {"text": text, "found": found, "hint": hint})
    try:
        ModuleGlob(text)
    except GlobError as error:
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
        message = "`{text}` names `{root}`; write MODULE:output or MODULE:input, and the hook captures the gradient of this value"
        raise PydanticCustomError("bad_reference", message, {"text": text, "root": reference.value.root})
    if not ModuleGlob(_pattern(reference.module)).is_exact:
        message = "`{text}` is a reference, which names one module; for a glob use hook `backward`, which captures the gradients of outputs"
        hint = f'write `hook: backward` and `modules: ["{reference.module}"]`'
        raise PydanticCustomError("bad_reference", message, {"text": text, "hint": hint})
    return f"{reference.module}:{reference.value}"


def _value(text: str) -> str:
    try:
        return str(ValuePath.parse(text))
    except ValueError as error:
        raise _no_value(error, text) from None


def _operation(text: str) -> str:
    if "${" in text:
        return text  # a variable without a value is reported when variables are replaced
    try:
        return str(OperationName.parse(text))
    except ValueError as error:
        raise PydanticCustomError("operation_name", "{why}", {"why": str(error)}) from None


def _no_value(error: ValueError, text: str) -> PydanticCustomError:
    root = text.partition(".")[0]
    hint = "" if root in ROOTS or "[" in root else nearest(root, ROOTS)
    return PydanticCustomError("value_path", "{why}", {"why": str(error), "hint": hint})


def _name(text: str) -> str:
    if message := name_fault(text):
        raise PydanticCustomError("name", "{message}", {"message": message})
    return text


def name_fault(text: str) -> str:
    """The reason why a text is not a name; empty if it is one."""
    if text[:1].isalpha() and text.isascii() and all(c.isalnum() or c in "_-" for c in text) and len(text) <= LONGEST:
        return ""
    return f"`{text}` is not a name; a name starts with a letter and has only letters, digits, `_` and `-`, at most {LONGEST} characters"


def _class(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        message = "`{text}` is not a class name; write a name such as `Conv2d`, or a dotted name such as `torch.nn.Conv2d`"
        raise PydanticCustomError("name", message, {"text": text})
    return text


def _dtype(name: str) -> str:
    if name not in DTYPES:
        message = "`{name}` is not a dtype; the nearest are {known}"
        raise PydanticCustomError("dtype", message, {"name": name, "known": closest(name, DTYPES), "hint": nearest(name, DTYPES)})
    return name


def _amount(value: Any) -> Any:
    """The bytes of a text such as `64 MiB`; None for `unlimited`."""
    if value is None or value == "unlimited":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if value > 0:
            return value
        raise PydanticCustomError("bytes", "`{value}` is not a limit; write 1 or more, or `unlimited`", {"value": value})
    number, _, unit = str(value).strip().partition(" ")
    digits = number.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit() and len(number) < 16 and unit.strip() in UNITS):
        message = "`{value}` is not an amount of bytes; write a number and a unit such as `64 MiB` ({units}), or `unlimited`"
        raise PydanticCustomError("bytes", message, {"value": str(value), "units": ", ".join(UNITS)})
    amount = int(float(number) * UNITS[unit.strip()])
    if amount < 1:
        raise PydanticCustomError("bytes", "`{value}` is less than one byte", {"value": str(value)})
    return amount


def _shown(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


UNIQUE = Field(strict=False, json_schema_extra={"uniqueItems": True})
Name = Annotated[str, AfterValidator(_name), _shown(VARIABLE + PLAIN_NAME)]
Class = Annotated[str, AfterValidator(_class), _shown(CLASS)]
Dtype = Annotated[str, AfterValidator(_dtype)]
Pattern = Annotated[str, AfterValidator(_pattern), _shown(GLOB)]
Patterns = Annotated[tuple[Pattern, ...], UNIQUE]
Tensors = Annotated[tuple[Annotated[str, AfterValidator(_tensor), _shown(TENSOR)], ...], UNIQUE]
Values = Annotated[tuple[Annotated[str, AfterValidator(_value), _shown(VALUE)], ...], UNIQUE]
Operations = Annotated[tuple[Annotated[str, AfterValidator(_operation), _shown(OPERATION)], ...], UNIQUE]
Sinks = Annotated[tuple[Name, ...], UNIQUE]
Types = Annotated[tuple[Class, ...], UNIQUE]
Dims = Annotated[tuple[Name, ...], Field(strict=False)]
Amount = Annotated[
    int | None,
    BeforeValidator(_amount),
    PlainSerializer(lambda value: "unlimited" if value is None else value),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": AMOUNT}, {"type": "integer", "minimum": 1}]}),
]
