"""The facts of a series: which captures it has, with their clocks, dtype, shape and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype
from probes.capture_file.series_name import SeriesAddress
from probes.capture_file.series_part import SeriesPart
from probes.clock import SeriesKey
from probes.errors import AmbiguousSeries, SeriesNotFound
from probes.printable import counted, html_table
from probes.reader import sample_ids
from probes.reader.lazy_part import LazyPart
from probes.reader.selected import Chosen, SelectedCaptures, positions
from probes.reader.selection import Selection
from probes.signature import Signature, size


class SeriesFacts:
    """The captures of one (probe, target, leaf, phase) in order: by epoch, then rank, then clock; without their values.

    Files are opened when something of their captures is read.

    Attributes:
        key: name of the series.
    """

    def __init__(self, key: SeriesKey, parts: Sequence[LazyPart], selection: Selection) -> None:
        self.key = key
        self._parts = parts
        self._selection = selection

    @property
    def clocks(self) -> NDArray[Any]:
        """(captures,) structured: epoch, step, global_step, microstep, call, backward, rank."""
        return self._captures.clocks

    @property
    def steps(self) -> NDArray[Any]:
        """(captures,) the step of each capture."""
        return self.clocks["step"]

    @property
    def dtype(self) -> str:
        """Torch's name of the dtype, without prefix."""
        return self._some.dtype

    @property
    def dtypes(self) -> list[str]:
        """Names of all dtypes that the selected captures have; nearly always one."""
        return sorted({part.dtype for part, _ in self._chosen})

    @property
    def stored_dtypes(self) -> list[str]:
        """Names of all dtypes that the captures have, selected or not."""
        return sorted({part.dtype for part in self._parts if len(part.clocks)})

    @property
    def word(self) -> str:
        """`probe/target:leaf[@phase]`, with `~dtype` where one was chosen; `RunReader.find` takes it."""
        return str(SeriesAddress(self.key, self.dtype if self._selection.dtype is not None else ""))

    @property
    def dims(self) -> tuple[str, ...] | None:
        """Names of the axes of a capture, or None."""
        return self._first.dims

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the series in its first file: hook, module class, transforms."""
        return self._first.attrs

    @cached_property
    def signature(self) -> Signature:
        """dtype, sizes, names and labels of a capture; a size is None if captures differ."""
        first, shapes = self._first, self._captures.shapes
        if len({len(shape) for shape in shapes}) > 1:
            return Signature(first.dtype, None, None, first.coords)
        common = tuple(found[0] if len(set(found)) == 1 else None for found in zip(*shapes, strict=True))
        return Signature(first.dtype, common, first.dims, first.coords)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The different shapes of the captures, sorted."""
        return self._captures.shapes

    @property
    def row_sizes(self) -> NDArray[np.int64]:
        """(captures,) how many rows of `rows` each capture has; a scalar has one."""
        return self._captures.row_sizes

    @property
    def has_ids(self) -> bool:
        """Whether every file of the selection holds sample ids."""
        return bool(self._chosen) and all(part.sample_ids() is not None for part, _ in self._chosen)

    def step_ids(self, epoch: int, rank: int = 0) -> dict[int, list[int | str]]:
        """The sample ids of each step of an epoch, of the files that hold captures of the series; empty if the run recorded none."""
        parts = (part for part, _ in self._chosen if (part.entry.epoch, part.entry.rank) == (epoch, rank))
        return {step: ids for part in parts for step, ids in sample_ids.by_step(part).items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the captures, uncompressed."""
        return bits_dtype(self.dtype).itemsize * self._captures.elements

    def __len__(self) -> int:
        return len(self._captures)

    def __repr__(self) -> str:
        return f"<Series {self.key}: {counted(len(self), 'capture')} of {self.signature}>" if len(self) else f"<Series {self.key}: empty>"

    def row(self) -> tuple[object, ...]:
        """The facts for a list of series: name, captures, dtype, shape, bytes, first and last epoch."""
        if not len(self):
            return (self.word, 0, "", "", size(0), "")
        epochs = self.clocks["epoch"]
        first, last = int(epochs.min()), int(epochs.max())
        shape = str(self.signature).removeprefix(self.signature.dtype or "")
        return (self.word, len(self), self.dtype, shape, size(self.nbytes), str(first) if first == last else f"{first}-{last}")

    def _repr_html_(self) -> str:
        names = ("series", "captures", "dtype", "shape", "bytes", "epochs")
        return html_table(("", ""), [*zip(names, self.row(), strict=True), *(self.attrs.items() if len(self) else ())])

    @cached_property
    def _chosen(self) -> tuple[Chosen, ...]:
        """Positions of the selected captures by part, whatever their dtype."""
        selection, found = self._selection, []
        for part in self._parts:
            if selection.has_file(part.entry.epoch, part.entry.rank):
                at = positions(selection.step, part.steps)
                if selection.id is not None:
                    at = at[sample_ids.holding(part, at, selection.id)]
                if len(at) and selection.has_dtype(part.dtype):
                    found.append((part, at))
        return tuple(found)

    @cached_property
    def _captures(self) -> SelectedCaptures:
        if len(self._chosen) > 1 and len(self.dtypes) > 1:
            hint = f'choose one by the name `{self.key}~{self.dtypes[0]}`, or with `.sel(dtype="{self.dtypes[0]}")`'
            raise AmbiguousSeries(f"`{self.key}` holds {' and '.join(f'`{dtype}`' for dtype in self.dtypes)}; {hint}")
        return SelectedCaptures(self.key, self._chosen)

    @property
    def _some(self) -> SelectedCaptures:
        """The selected captures, at least one."""
        found = self._captures
        if not found.chosen:
            raise SeriesNotFound(f"`{self.key}` has no capture in this selection; {self.extent}")
        return found

    @property
    def _first(self) -> SeriesPart:
        return self._some.chosen[0][0].part()

    @property
    def has_dtype(self) -> bool:
        """Whether a capture, selected or not, has one of the selected dtypes."""
        return any(map(self._selection.has_dtype, self.stored_dtypes))

    @property
    def extent(self) -> str:
        """A part of a sentence: the epochs and steps of the captures of the selected dtypes, or the dtypes or sample ids that there are."""
        if not self.has_dtype:
            known = " and ".join(f"`{dtype}`" for dtype in self.stored_dtypes)
            return f"its captures are {known}" if known else "nothing was captured"
        if self._selection.id is not None:
            ids = next((ids for part in self._parts for ids in sample_ids.by_step(part).values() if ids), [])
            return f"it selects {self._selection.words}, and the ids of the samples are such as {', '.join(map(repr, ids[:3]))}"
        every = np.concatenate([part.clocks for part in self._parts if self._selection.has_dtype(part.dtype)])
        return "it has " + " and ".join(f"{name}s {every[name].min()} to {every[name].max()}" for name in ("epoch", "step"))
