"""Captures as a table of pandas, polars or pyarrow: one row for each number, with its place in the run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np

from probes.capture_file.dtype_decode import bits_dtype
from probes.errors import MissingExtra, UsageError
from probes.optional_package import import_optional
from probes.reader.export.long_arrow import arrow_column
from probes.reader.export.long_table import Column, LongTable, TextColumn
from probes.reader.series import Series

Package = Literal["pandas", "polars", "pyarrow"]
MOST_ROWS = 5_000_000


def frame_of(single: Sequence[Series], package: Package | None = None) -> Any:
    """The captures of several series, each of one dtype, as a table of pandas, polars or pyarrow; see `SeriesSet.frame`."""
    chosen = package or _installed()
    if chosen not in _MADE:
        raise UsageError(f"`{chosen}` makes no frame; it is one of {', '.join(f'`{name}`' for name in _MADE)}")
    made = import_optional(chosen, "frame", "a frame")
    count = sum(one.nbytes // bits_dtype(one.dtype).itemsize for one in single)
    if count > MOST_ROWS:
        raise UsageError(
            f"the table would have {count:,} rows, more than {MOST_ROWS:,}; select steps or series, or store `stats` of the values"
        )
    return _MADE[chosen](made, LongTable(single, complexes=chosen == "pandas").columns())


def _installed() -> Package:
    for package in get_args(Package):
        if find_spec(package) is not None:
            found: Package = package
            return found
    raise MissingExtra(
        'a frame needs one of the packages `pandas`, `polars` and `pyarrow`; install one with: pip install "torch-probes[frame]"'
    )


def _pandas(package: Any, found: dict[str, Column]) -> Any:
    return package.DataFrame(
        {
            name: package.Categorical.from_codes(one.codes, list(one.words)) if isinstance(one, TextColumn) else one
            for name, one in found.items()
        }
    )


def _polars(package: Any, found: dict[str, Column]) -> Any:
    def column(one: Column) -> Any:
        if not isinstance(one, TextColumn):
            return one
        codes = package.Series(np.where(one.codes < 0, len(one.words), one.codes))
        return package.Series([*one.words, None], dtype=package.String).gather(codes).cast(package.Categorical)

    return package.DataFrame({name: column(one) for name, one in found.items()})


def _pyarrow(package: Any, found: dict[str, Column]) -> Any:
    return package.table({name: arrow_column(package, name, one) for name, one in found.items()})


_MADE = {"pandas": _pandas, "polars": _polars, "pyarrow": _pyarrow}
