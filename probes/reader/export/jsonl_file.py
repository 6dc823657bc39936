"""Captures as JSON Lines: a capture in each line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

from probes.progress.loops import with_progress
from probes.reader.series import Series


def write_jsonl(stream: IO[bytes], series: Sequence[Series], *, wide: bool, about: Mapping[str, str]) -> None:
    """Write a line for each capture: its series, clock, shape and values."""
    for one in with_progress(series, "series"):
        name = one.key._asdict() | {"dtype": one.dtype}
        for capture in one:
            values = [plain(value) for value in capture.value.reshape(-1).tolist()]
            line = name | capture.clock._asdict() | {"shape": capture.value.shape, "values": values}
            stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")


def plain(value: Any) -> Any:
    """A value that JSON can hold; NaN, infinities and complex numbers become text."""
    if isinstance(value, complex) or value != value or value in (float("inf"), float("-inf")):
        return str(value)
    return value
