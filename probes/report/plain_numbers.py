"""Numbers in JSON: exactly those of the file, in the fewest digits of their dtype."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from numpy.typing import NDArray

Plain = float | int | str


def plain(numbers: NDArray[Any]) -> list[Plain]:
    """(n,) numbers as JSON holds them: read into their dtype again they are the same; those that are not finite are text."""
    if numbers.dtype.kind in "biu":
        return [int(number) for number in numbers.tolist()]
    texts = numbers.astype(f"U{32}").tolist() if numbers.dtype.itemsize < 8 else numbers.tolist()
    return [_whole(float(text)) for text in texts]


def _whole(number: float) -> Plain:
    if not isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    return int(number) if number.is_integer() and abs(number) < 1e15 and (number or str(number) == "0.0") else number


def json_text(data: Any) -> str:
    """The data as JSON in ASCII that cannot end an element of HTML."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
