"""Captures as Parquet and Arrow files, which pandas, polars, DuckDB and many others read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from probes.optional_package import import_optional
from probes.reader.export.long_arrow import LongArrowTable
from probes.reader.export.wide_table import WideTable
from probes.reader.series import Series

ROW_GROUP = 1 << 18


def record_batches(series: Sequence[Series], *, wide: bool = False, about: Mapping[str, str] | None = None) -> Any:
    """A `pyarrow.RecordBatchReader` over the captures, which reads them on demand.

    Args:
        series: each of one dtype.
        wide: one row for each place of the clock instead of one for each number.
        about: what the metadata of the schema says besides the series.

    Raises:
        MissingExtra: pyarrow is not installed.
        UsageError: the captures do not fit in a table of this form.
    """
    package = import_optional("pyarrow", "parquet", "a Parquet or Arrow table")
    table = WideTable(series, package) if wide else LongArrowTable(series, package)
    schema = table.schema.with_metadata({"probes.series": json.dumps([_about(one) for one in series]), **(about or {})})
    found = (batch for one in table.tables() for batch in one.replace_schema_metadata(schema.metadata).to_batches())
    return package.RecordBatchReader.from_batches(schema, found)


def write_parquet(stream: IO[bytes], series: Sequence[Series], *, wide: bool, about: Mapping[str, str]) -> None:
    """Write a Parquet file."""
    reader = record_batches(series, wide=wide, about=about)
    parquet = import_optional("pyarrow.parquet", "parquet", "a Parquet file")
    _write(stream, reader, lambda sink: parquet.ParquetWriter(sink, reader.schema, compression="zstd"))


def write_arrow(stream: IO[bytes], series: Sequence[Series], *, wide: bool, about: Mapping[str, str]) -> None:
    """Write an Arrow IPC file, also called Feather."""
    reader = record_batches(series, wide=wide, about=about)
    ipc = import_optional("pyarrow.ipc", "parquet", "an Arrow file")
    _write(stream, reader, lambda sink: ipc.new_file(sink, reader.schema))


def _write(stream: IO[bytes], reader: Any, begin: Callable[[IO[bytes]], Any]) -> None:
    """Write all batches, joined to row groups of about `ROW_GROUP` rows."""
    package = import_optional("pyarrow", "parquet", "a Parquet or Arrow table")
    with begin(stream) as writer:
        group: list[Any] = []
        for batch in reader:
            group.append(batch)
            if sum(map(len, group)) >= ROW_GROUP:
                writer.write_table(package.Table.from_batches(group).combine_chunks())
                group = []
        if group:
            writer.write_table(package.Table.from_batches(group).combine_chunks())


def _about(series: Series) -> dict[str, Any]:
    return {"series": series.word, "dtype": series.dtype, "dims": series.dims, "attrs": series.attrs}
