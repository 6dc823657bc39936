"""All captures of one series, read back over every file of a run that holds some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import bits_dtype, values
from probes.capture_file.series_name import Address
from probes.capture_file.series_part import CLOCKS, Part, StepIds, distinct, shape_of, sizes, stored_shape
from probes.clock import Clock, SeriesKey
from probes.errors import AmbiguousSeries, RaggedSeries, SeriesNotFound
from probes.reader import sample_ids
from probes.reader.selection import Names, Numbers, Selection
from probes.reader.source import Source
from probes.run_directory.listing import Directory
from probes.signature import Signature

if TYPE_CHECKING:
    import torch
    import xarray


class Capture(NamedTuple):
    """One tensor, read back.

    Attributes:
        value: the tensor as `Series.numpy` gives it; owned by the caller.
        clock: where in the run it was taken.
    """

    value: NDArray[Any]
    clock: Clock


class Piece:
    """What a series has in one file.

    Attributes:
        source: the series in that file.
        chosen: (n,) positions of the selected captures.
        dtype: torch's name.
        shape: as in `Part`.
    """

    def __init__(self, source: Source, chosen: NDArray[np.intp]) -> None:
        self.source = source  # and not its part, which would keep the file open
        self.chosen = chosen
        self.dtype, self.shape, _ = source.about

    @cached_property
    def clocks(self) -> NDArray[Any]:
        """(n,) of `CLOCKS`."""
        return self.source.part().clocks[self.chosen]

    @cached_property
    def shapes(self) -> NDArray[np.int64]:
        """(n, rank) sizes; -1 fills up a capture of lower rank."""
        return self.source.part().shapes[self.chosen]


class Series:
    """The captures of one (probe, target, leaf, phase) in order: by epoch, then rank, then clock.

    Files are opened when something of them is asked for. Arrays are fresh memory, owned by the caller.

    Attributes:
        key: name of the series.
    """

    def __init__(self, directory: Directory, key: SeriesKey, sources: Sequence[Source], selection: Selection) -> None:
        self.key = key
        self._directory = directory
        self._sources = sources
        self._selection = selection
        self._known: tuple[Piece, ...] | None = None
        self._mixed = False

    def sel(self, *, epoch: Numbers = None, step: Numbers = None, rank: Numbers = None, dtype: Names = None) -> Series:
        """The captures at some places of the clock.

        Args:
            epoch: a number, several, or a slice; a slice goes by value and leaves out its end.
            step: the same.
            rank: the same.
            dtype: torch's name, where the series changed its dtype.

        Raises:
            UsageError: a coordinate is chosen twice, or by something that is not a number.
        """
        if type(step) is int and epoch is None and rank is None and dtype is None:
            selection = self._selection.at_step(step)
        else:
            selection = self._selection.narrowed(epoch=epoch, step=step, rank=rank, dtype=dtype)
        return Series(self._directory, self.key, self._sources, selection)

    def numpy(self) -> NDArray[Any]:
        """All captures as one array.

        Returns:
            (captures, *shape); bfloat16 and float8 as float32, exactly (`bits` has them as they are).

        Raises:
            RaggedSeries: the captures differ in shape.
            SeriesNotFound: no capture is at the selected places.
        """
        only = self._only()
        if only is not None:
            source, at = only
            return _taken(source.part(), source.about.shape, at)[None]
        return values(self.bits(), self.dtype)

    def rows(self, mask: Series | None = None) -> NDArray[Any]:
        """All captures joined along their first axis, whatever their number of rows.

        Args:
            mask: a series taken in the same calls, whose axes are the first ones of this one; keeps what is true in it.

        Returns:
            (N, ...): N is the number of rows of all captures; with a mask, the number of places that are kept.

        Raises:
            RaggedSeries: the captures differ in more than their first axis, or do not fit the mask.
            SeriesNotFound: no capture is at the selected places.
        """
        if mask is not None:
            return sample_ids.masked(self, mask)
        dtype = self.dtype  # refuses an empty selection
        rest = () if self._shapes == [()] else self._shared(1)
        bits = self._flat().reshape(int(self.row_sizes.sum()), *stored_shape(rest, dtype))
        return values(bits, dtype)

    def bits(self) -> NDArray[Any]:
        """All captures as one array of the exact bits; see `numpy`. Complex numbers are pairs on a last axis."""
        dtype = self.dtype  # refuses an empty selection
        return self._flat().reshape(len(self), *stored_shape(self._shared(0), dtype))

    def torch(self) -> torch.Tensor:
        """All captures as one CPU tensor of the true dtype; see `numpy`."""
        return import_module("probes.reader.convert").to_torch(self)  # type: ignore[no-any-return]  # found by name

    def xarray(self) -> xarray.DataArray:
        """All captures as a labelled array: along `step` when they are of one shape, else along their rows."""
        return import_module("probes.reader.convert").to_xarray(self)  # type: ignore[no-any-return]  # found by name

    @property
    def ids(self) -> NDArray[Any]:
        """(N,) ids of the samples behind `rows`, as the run was told them.

        Raises:
            SeriesNotFound: the run was told none.
            RaggedSeries: the rows are not one for each sample.
        """
        return sample_ids.ids(self)

    @cached_property
    def clocks(self) -> NDArray[Any]:
        """(captures,) structured: epoch, step, global_step, microstep, call, backward, rank."""
        return np.concatenate([np.empty(0, CLOCKS), *(piece.clocks for piece in self.pieces)])

    @property
    def steps(self) -> NDArray[Any]:
        """(captures,) the step of each capture."""
        return self.clocks["step"]

    @property
    def dtype(self) -> str:
        """Torch's name of the dtype, without prefix."""
        if not self.pieces:
            raise SeriesNotFound(f'"{self.key}" has no capture at the selected places; {self._extent()}')
        return self.pieces[0].dtype

    @property
    def dtypes(self) -> list[str]:
        """Names of all dtypes that the selected captures have; nearly always one."""
        return sorted({piece.dtype for piece in self._found})

    def by_dtype(self) -> list[Series]:
        """The series itself, or one for each dtype where it has several; none where nothing was selected."""
        return [self] if len(self.dtypes) == 1 else [self.sel(dtype=dtype) for dtype in self.dtypes]

    @property
    def word(self) -> str:
        """`probe/target:leaf[@phase]`, with `~dtype` where one was chosen; `RunReader.find` takes it."""
        return str(Address(self.key, self.dtype if self._selection.dtype is not None else ""))

    @property
    def dims(self) -> tuple[str, ...] | None:
        """Names of the axes of a capture, or None."""
        return self._first.dims

    @property
    def attrs(self) -> dict[str, Any]:
        """What the first file says of the series: hook, module class, transforms."""
        return self._first.attrs

    @cached_property
    def signature(self) -> Signature:
        """dtype, sizes, names and labels of a capture; a size is None where captures differ."""
        first = self._first
        if len({len(shape) for shape in self._shapes}) > 1:
            return Signature(first.dtype, None, None, first.coords)
        common = tuple(found[0] if len(set(found)) == 1 else None for found in zip(*self._shapes, strict=True))
        return Signature(first.dtype, common, first.dims, first.coords)

    @property
    def row_sizes(self) -> NDArray[np.int64]:
        """(captures,) how many rows of `rows` each capture has; a scalar has one."""
        ones = [piece.shapes[:, 0] if piece.shapes.shape[1] else np.ones(len(piece.chosen), np.int64) for piece in self.pieces]
        return np.concatenate([np.empty(0, np.int64), *ones])

    @property
    def nbytes(self) -> int:
        """Bytes of the captures, uncompressed."""
        return bits_dtype(self.dtype).itemsize * self._elements

    def __len__(self) -> int:
        return sum(len(piece.chosen) for piece in self.pieces)

    def __getitem__(self, index: int) -> Capture:
        """The capture at a position, counted from the end where negative."""
        place = index + len(self) if index < 0 else index
        for piece in self.pieces:
            if 0 <= place < len(piece.chosen):
                return self._capture(piece, piece.source.part(), place)
            place -= len(piece.chosen)
        raise IndexError(f"capture {index} of {len(self)}")

    def __iter__(self) -> Iterator[Capture]:
        """One capture after the other; memory is that of one."""
        for piece in self.pieces:
            part = piece.source.part()
            for place in range(len(piece.chosen)):
                yield self._capture(piece, part, place)

    def __repr__(self) -> str:
        return f"<Series {self.key}: {len(self)} captures of {self.signature}>" if len(self) else f"<Series {self.key}: empty>"

    def sample_ids(self, piece: Piece) -> StepIds | None:
        """Which samples the steps of a file saw, where the run was told."""
        return self._directory.file(piece.source.entry.name).ids(self.key.phase)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What each file has of the selected captures.

        Raises:
            AmbiguousSeries: they are of several dtypes.
        """
        found = self._found
        if self._mixed:
            hint = f'choose with .sel(dtype="{self.dtypes[0]}")'
            raise AmbiguousSeries(f'"{self.key}" holds {" and ".join(self.dtypes)}; {hint}')
        return found

    @property
    def _found(self) -> tuple[Piece, ...]:
        if self._known is None:
            selection, found = self._selection, []
            for source in self._sources:
                if selection.has_file(source.entry.epoch, source.entry.rank):
                    about = source.about
                    chosen = selection.of(about.steps)
                    if len(chosen) and selection.has_dtype(about.dtype):
                        found.append(Piece(source, chosen))
            self._mixed = len(found) > 1 and any(piece.dtype != found[0].dtype for piece in found)
            self._known = tuple(found)
        return self._known

    def _only(self) -> tuple[Source, int] | None:
        """Where the one capture of one step stands, found in as little Python as can be; None where it is not so simple."""
        selection = self._selection
        step = selection.step
        if type(step) is not int or selection.dtype is not None:
            return None
        only = None
        for source in self._sources:
            if selection.has_file(source.entry.epoch, source.entry.rank):
                steps = source.about.steps
                if not steps.ascending:
                    return None
                first, last = steps.span(step)
                if last > first:
                    if only is not None or last > first + 1:
                        return None
                    only = source, first
        return only

    @property
    def _first(self) -> Part:
        _ = self.dtype  # refuses an empty selection
        return self.pieces[0].source.part()

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """The distinct shapes."""
        known = {piece.shape for piece in self.pieces if piece.shape is not None}
        return sorted(known | {shape_of(row) for piece in self.pieces if piece.shape is None for row in distinct(piece.shapes)})

    @property
    def _elements(self) -> int:
        if len(self._shapes) == 1:
            return len(self) * prod(stored_shape(self._shapes[0], self.dtype))
        return sum(int(sizes(piece.shapes, self.dtype).sum()) for piece in self.pieces)

    def _extent(self) -> str:
        every = Series(self._directory, self.key, self._sources, Selection(dtype=self._selection.dtype)).clocks
        return "it has " + " and ".join(f"{name}s {every[name].min()} to {every[name].max()}" for name in ("epoch", "step"))

    def _shared(self, axis: int) -> tuple[int, ...]:
        """The sizes from `axis` on, which all captures share."""
        rests = {shape[axis:] for shape in self._shapes}
        if len(rests) > 1:
            shown = ", ".join(map(str, self._shapes[:3])) + (", ..." if len(self._shapes) > 3 else "")
            joinable = all(self._shapes) and len({shape[1:] for shape in self._shapes}) == 1
            hint = ".rows() joins them along the first axis, " if joinable else ""
            raise RaggedSeries(f'the captures of "{self.key}" have the shapes {shown}; {hint}iterating gives one after the other')
        return rests.pop()

    def _flat(self) -> NDArray[Any]:
        out = np.empty(self._elements, bits_dtype(self.dtype))
        start = 0
        for piece in self.pieces:
            part = piece.source.part()
            for first, last in _runs(piece.chosen):
                taken = part.elements(first, last)
                out[start : start + len(taken)] = taken
                start += len(taken)
        return out

    def _capture(self, piece: Piece, part: Part, place: int) -> Capture:
        row = piece.clocks[place].item()
        return Capture(_taken(part, piece.shape, int(piece.chosen[place])), Clock(row[0], self.key.phase, *row[1:]))


def _taken(part: Part, shape: tuple[int, ...] | None, at: int) -> NDArray[Any]:
    """One capture, owned by the caller."""
    if shape is None:
        shape = shape_of(part.shapes[at])
    return values(np.array(part.elements(at, at + 1)).reshape(stored_shape(shape, part.dtype)), part.dtype)


def _runs(chosen: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Consecutive positions, each as the first and the one behind the last."""
    edges = [0, *(np.flatnonzero(np.diff(chosen) != 1) + 1).tolist(), len(chosen)]
    for first, last in pairwise(edges):
        yield int(chosen[first]), int(chosen[last - 1]) + 1
