"""The long form of captures as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from probes.reader.export.clock_columns import CLOCK, NAMES
from probes.reader.export.long_table import Column, LongTable, TextColumn
from probes.reader.series import Series


class LongArrowTable(LongTable):
    """The numbers of several series as Arrow tables of the same columns.

    Args:
        series: each of one dtype.
        package: pyarrow.

    Raises:
        UsageError: numbers of the series do not fit in one column.
    """

    def __init__(self, series: Sequence[Series], package: Any) -> None:
        super().__init__(series)
        self.package = package

    @property
    def schema(self) -> Any:
        """The columns."""
        arrow = self.package
        text = arrow.dictionary(arrow.int32(), arrow.string())
        fields = [*((name, text) for name in NAMES), *((name, arrow.int64()) for name in CLOCK)]
        fields += [(column, arrow.int64()) for column in self.index_columns.values()]
        if self.labels:
            fields.append(("label", text if isinstance(self.labels[0], str) else arrow.float64()))
        return arrow.schema([*fields, ("value", arrow.from_numpy_dtype(self.kind))])

    def tables(self) -> Iterator[Any]:
        """One table after the other, of at most `ROWS` rows."""
        schema = self.schema
        for part in self.parts():
            yield self.package.table([arrow_column(self.package, name, one) for name, one in part.items()], schema=schema)


def arrow_column(package: Any, name: str, column: Column) -> Any:
    """A column as an Arrow array; a missing label is null."""
    if isinstance(column, TextColumn):
        codes = package.array(column.codes, mask=column.codes < 0)
        return package.DictionaryArray.from_arrays(codes, package.array(column.words, package.string()))
    return package.array(column, mask=np.isnan(column)) if name == "label" else package.array(column)
