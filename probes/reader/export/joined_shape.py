"""The shape of all captures of a series in one array."""

from __future__ import annotations

from probes.errors import UsageError
from probes.reader.series import Series


def joined_shape(series: Series) -> tuple[int, ...]:
    """(captures, *shape), or (rows of all captures, ...) if captures differ in their number of rows.

    Raises:
        UsageError: they differ in more than that.
    """
    shapes = series.shapes
    if len(shapes) == 1:
        return (len(series), *shapes[0])
    if len({shape[1:] for shape in shapes}) > 1 or () in shapes:
        shown = ", ".join(map(str, shapes[:3])) + (", ..." if len(shapes) > 3 else "")
        way = "`--format jsonl` exports captures of any shape, and `parquet` too"
        raise UsageError(f"the captures of `{series.word}` have the shapes {shown}; {way}")
    return (int(series.row_sizes.sum()), *shapes[0][1:])
