"""Captures as npz: an array for each series."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from probes.capture_file.dtype_decode import values_dtype
from probes.progress.loops import with_progress
from probes.reader.export.joined_shape import joined_shape
from probes.reader.series import Series

ELEMENTS = 1 << 20


def write_npz(stream: IO[bytes], series: Sequence[Series], *, wide: bool, about: Mapping[str, str]) -> None:
    """Write an array of each series, of its clocks, and of its row sizes if these differ; a group of captures at a time.

    Raises:
        UsageError: captures differ in more than their number of rows.
    """
    shapes = [joined_shape(one) for one in series]
    with zipfile.ZipFile(stream, "w") as archive:
        for one, shape in with_progress([*zip(series, shapes, strict=True)], "series"):
            with archive.open(f"{one.word}.npy", "w", force_zip64=True) as member:
                _header(member, shape, values_dtype(one.dtype))
                for batch in one.batches(ELEMENTS):
                    member.write(np.ascontiguousarray(batch.values()).data.cast("B"))
            for name, array in _columns(one):
                with archive.open(f"{one.word}.{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


def _header(stream: IO[bytes], shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
    np.lib.format.write_array_header_1_0(stream, {"descr": kind.str, "fortran_order": False, "shape": shape})


def _columns(series: Series) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    yield "clocks", series.clocks
    if len(series.shapes) > 1:
        yield "row_sizes", series.row_sizes
