"""Amounts of bytes as people write them: `2 GiB`, `64 MiB`, `500 MB`, `unlimited`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

PATTERN = rf"\$\{{|^ *unlimited *$|^ *[0-9]*\.?[0-9]* +(?:{'|'.join(UNITS)}) *$"


def parse(value: Any) -> Any:
    """The bytes that a text says; None for `unlimited`."""
    if value is None or value == "unlimited":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if value > 0:
            return value
        raise PydanticCustomError("bytes", "{value} bytes is no limit; write 1 or more, or unlimited", {"value": value})
    number, _, unit = str(value).strip().partition(" ")
    digits = number.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit() and len(number) < 16 and unit.strip() in UNITS):
        message = "'{value}' is not an amount of bytes; write a number and a unit such as '64 MiB' ({units}), or unlimited"
        raise PydanticCustomError("bytes", message, {"value": str(value), "units": ", ".join(UNITS)})
    amount = int(float(number) * UNITS[unit.strip()])
    if amount < 1:
        raise PydanticCustomError("bytes", "'{value}' is less than a byte", {"value": str(value)})
    return amount


Amount = Annotated[
    int | None,
    BeforeValidator(parse),
    PlainSerializer(lambda value: "unlimited" if value is None else value),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": PATTERN}, {"type": "integer", "minimum": 1}]}),
]
