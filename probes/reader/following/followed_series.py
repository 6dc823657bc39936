"""The last numbers of one series of a run that is being written."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import isfinite, nan, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype, values
from probes.capture_file.series_name import SeriesAddress
from probes.clock import SeriesKey
from probes.reader.plot.layers_plot import PREFERRED
from probes.reader.series import Series
from probes.signature import DTYPES

KEPT = 120  # limit of numbers of a series
LARGEST = 1 << 20  # limit of bytes of a capture whose mean is computed; of larger ones only the size is shown


class FollowedSeries:
    """One number of each of the last captures of a series.

    Attributes:
        word: the series as `probes ls` lists it.
        label: which number of a capture is taken; empty for a single number or the mean of all.
        shape: of the last capture.
        numbers: those of the last captures, oldest first; NaN if a capture has no finite number.
        not_finite: how many of the checked numbers are NaN or infinite.
    """

    def __init__(self, key: SeriesKey) -> None:
        self.word = str(SeriesAddress(key, ""))
        self.key = key
        self.label = ""
        self.shape: tuple[int, ...] = ()
        self.numbers: deque[float] = deque(maxlen=KEPT)
        self.not_finite = 0

    def take(self, about: Mapping[str, Any], raw: bytes | None) -> None:
        """Take the number of one more capture.

        Args:
            about: its descriptor.
            raw: its bytes; None if they are too many, or gone.
        """
        self.shape = tuple(about["shape"])
        if raw is None:
            return
        dtype = about["dtype"]
        kind = bits_dtype(dtype)
        self.add(values(np.frombuffer(raw, kind, len(raw) // kind.itemsize), dtype), labels_of(about.get("dims"), about.get("coords")))

    def add(self, found: NDArray[Any], labels: tuple[str, ...]) -> None:
        """Take the number of one more capture out of its values.

        Args:
            found: the values, of any shape.
            labels: of its only axis.
        """
        flat = np.abs(found) if np.iscomplexobj(found) else found
        flat = np.asarray(flat, "f8").reshape(-1)
        if labels and len(labels) == len(flat):
            self.label = next((label for label in PREFERRED if label in labels), labels[0])
            number = float(flat[labels.index(self.label)])
            bad = not isfinite(number)
        else:
            finite = flat[np.isfinite(flat)]
            number = float(finite.mean()) if len(finite) else nan
            bad = len(finite) < len(flat)
        self.numbers.append(number)
        self.not_finite += bad


def labels_of(dims: Any, coords: Any) -> tuple[str, ...]:
    """The labels of the only axis of a capture; empty if it has none."""
    return tuple(map(str, (coords or {}).get(dims[0], ()))) if dims is not None and len(dims) == 1 else ()


def nbytes_of(about: Mapping[str, Any]) -> int:
    """Bytes of a capture with this descriptor."""
    return int(DTYPES[about["dtype"]].itemsize * prod(about["shape"]))


def followed(series: Series) -> FollowedSeries:
    """The last numbers of a series of sealed files; the selection holds a capture."""
    found = FollowedSeries(series.key)
    for one in series.by_dtype():
        found.shape = one.shapes[-1]
        if one.nbytes // len(one) <= LARGEST:
            labels = labels_of(one.dims, one.signature.coords)
            for index in range(max(len(one) - KEPT, 0), len(one)):
                found.add(one[index].value, labels)
    return found
