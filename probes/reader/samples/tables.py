"""Samples as tables of Arrow and of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from probes.optional_package import import_optional

ROWS = 1024  # least number of items of a record batch, except the last


class TabledItems(Protocol):
    """Items with rows of some series."""

    names: list[str]

    @property
    def captures(self) -> int:
        """The number of captures."""

    def groups(self, places: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
        """The items of some captures."""

    def __getitem__(self, index: Any) -> Any:
        """An item."""


def items_of(items: TabledItems) -> Iterator[dict[str, Any]]:
    """All items, a capture at a time."""
    for group in items.groups(range(items.captures)):
        yield from group


def record_batches_of(items: TabledItems) -> Any:
    """All items as a `pyarrow.RecordBatchReader`; see `SampleDataset.arrow`."""
    package = import_optional("pyarrow", "parquet", "`SampleDataset.arrow`")
    first = items[0]
    fields = [_field(package, name, value, name in items.names) for name, value in first.items()]
    schema = package.schema(fields)

    def batch(rows: list[dict[str, Any]]) -> Any:
        return package.RecordBatch.from_arrays([_column(package, field, rows) for field in schema], schema=schema)

    def batches() -> Iterator[Any]:
        waiting: list[dict[str, Any]] = []
        for group in items.groups(range(items.captures)):
            waiting += group
            if len(waiting) >= ROWS:
                yield batch(waiting)
                waiting = []
        if waiting:
            yield batch(waiting)

    return package.RecordBatchReader.from_batches(schema, batches())


def _field(package: Any, name: str, value: Any, is_row: bool) -> Any:
    """The field of a key of the items: a list of fixed size for rows with axes."""
    if not is_row:
        return package.field(name, package.array([value]).type)
    kind = package.from_numpy_dtype(value.dtype)
    if not value.shape:
        return package.field(name, kind)
    shape = "x".join(map(str, value.shape))
    return package.field(name, package.list_(kind, value.size), metadata={"shape": shape})


def _column(package: Any, field: Any, rows: list[dict[str, Any]]) -> Any:
    values = [row[field.name] for row in rows]
    if not package.types.is_fixed_size_list(field.type):
        return package.array(values, field.type)
    return package.FixedSizeListArray.from_arrays(package.array(np.stack(values).reshape(-1)), field.type.list_size)


def huggingface_table(items: TabledItems, *, streaming: bool) -> Any:
    """All items as a table of the package `datasets`; see `SampleDataset.huggingface`."""
    package = import_optional("datasets", "datasets", "`SampleDataset.huggingface`")
    features = package.Features({name: _feature(package, value) for name, value in items[0].items()})
    if streaming:
        return package.IterableDataset.from_generator(items_of, features=features, gen_kwargs={"items": items})
    return package.Dataset.from_generator(items_of, features=features, gen_kwargs={"items": items}, keep_in_memory=True)


def _feature(package: Any, value: Any) -> Any:
    kind = value.dtype.name if isinstance(value, np.ndarray) else {int: "int64", float: "float64", bool: "bool"}.get(type(value), "string")
    shape = value.shape if isinstance(value, np.ndarray) else ()
    if not shape:
        return package.Value(kind)
    if len(shape) == 1:
        return package.Sequence(package.Value(kind), length=shape[0])
    return getattr(package, f"Array{len(shape)}D")(shape=shape, dtype=kind)
