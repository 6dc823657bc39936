"""Captures as safetensors: a tensor of its own dtype for each series, bit for bit; the format needs no package to be written."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import IO, Any

import numpy as np

from probes.errors import UsageError
from probes.progress.loops import with_progress
from probes.reader.export.clock_columns import CLOCK, whole
from probes.reader.export.joined_shape import joined_shape
from probes.reader.series import Series
from probes.signature import DTYPES

ELEMENTS = 1 << 20
NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}
"""The dtypes that the format has, by torch's names."""


def write_safetensors(stream: IO[bytes], series: Sequence[Series], *, wide: bool, about: Mapping[str, str]) -> None:
    """Write a tensor of each series, its clocks as `NAME.clocks` (int64), and its row sizes if these differ.

    Raises:
        UsageError: captures differ in more than their number of rows, or have a dtype that the format lacks.
    """
    entries = [entry for one in series for entry in _entries(one)]
    header: dict[str, Any] = {"__metadata__": {"clock": " ".join(CLOCK), **about}}
    end = 0
    for name, dtype, shape in entries:
        size = prod(shape) * DTYPES[dtype].itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    stream.write(struct.pack("<Q", len(text)) + text)
    for one in with_progress(series, "series"):
        for batch in one.batches(ELEMENTS):
            stream.write(np.ascontiguousarray(batch.bits).data.cast("B"))
        stream.write(np.stack([whole(one.clocks[name]) for name in CLOCK], axis=1).astype("<i8").tobytes())
        if len(one.shapes) > 1:
            stream.write(one.row_sizes.astype("<i8").tobytes())


def _entries(series: Series) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of each tensor of a series."""
    if series.dtype not in NAMES:
        raise UsageError(f"`{series.word}` holds `{series.dtype}`, which safetensors does not have; `--format npz` takes it")
    yield series.word, series.dtype, joined_shape(series)
    yield f"{series.word}.clocks", "int64", (len(series), len(CLOCK))
    if len(series.shapes) > 1:
        yield f"{series.word}.row_sizes", "int64", (len(series),)
