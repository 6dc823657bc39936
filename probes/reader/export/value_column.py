"""The numbers of several series in one column of a table, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import values_dtype
from probes.errors import UsageError
from probes.reader.series import Series

Numeric = np.dtype[Any]
EXACT = 1 << 53  # float64 holds all integers up to this one


def joint_dtype(series: Sequence[Series], *, complexes: bool = False) -> Numeric:
    """The dtype of a column for the numbers of all series; float16 is widened, because few readers support it.

    Args:
        series: each of one dtype.
        complexes: whether the column may hold complex numbers.

    Raises:
        UsageError: a series holds complex numbers, which the table does not have.
    """
    for one in series:
        if values_dtype(one.dtype).kind == "c" and not complexes:
            raise UsageError(
                f"`{one.word}` holds `{one.dtype}`, and a table has no complex numbers; export it as npz, or store `abs` of it"
            )
    found = np.result_type(*(values_dtype(one.dtype) for one in series)) if series else np.dtype(float)
    return np.dtype(np.float32) if found == np.float16 else found


def as_column(numbers: NDArray[Any], kind: Numeric, series: Series) -> NDArray[Any]:
    """Numbers of a series in the dtype of their column.

    Raises:
        UsageError: an integer of the series has no counterpart among floats, which other series of the column need.
    """
    if kind.kind in "fc" and numbers.dtype.kind in "iu" and numbers.dtype.itemsize == 8 and numbers.size:
        low, high = int(numbers.min()), int(numbers.max())
        if low < -EXACT or high > EXACT:
            far = low if low < -EXACT else high
            raise UsageError(f"`{series.word}` holds the integer {far}, which no float is equal to; export it apart from series of floats")
    return numbers.astype(kind, copy=False)
