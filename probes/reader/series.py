"""All captures of one series, over all files of a run with some of them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from probes.capture_file.dtype_decode import values
from probes.clock import SeriesKey
from probes.errors import RaggedSeries, UsageError
from probes.reader import sample_ids
from probes.reader.convert import labelled_array, tensor_of_bits
from probes.reader.export.batch import Batch, batches
from probes.reader.lazy_part import LazyPart
from probes.reader.loss_scales import divided, loss_scales, nonlinear
from probes.reader.padded import filled, side_by_side
from probes.reader.plot.series_plot import plot_series
from probes.reader.ranks.by_rank import SeriesOfRanks
from probes.reader.ranks.full import full_captures
from probes.reader.selected import Capture, SelectedCaptures
from probes.reader.selection import Names, Numbers, Samples, Selection
from probes.reader.series_facts import SeriesFacts

if TYPE_CHECKING:
    import torch
    import xarray


class Series(SeriesFacts):
    """The captures of one (probe, target, leaf, phase) in order: by epoch, then rank, then clock.

    Files are opened when their captures are read. Arrays are fresh memory, owned by the caller.

    Attributes:
        key: name of the series.
    """

    def __init__(self, key: SeriesKey, parts: Sequence[LazyPart], selection: Selection, scales: Sequence[LazyPart] = ()) -> None:
        super().__init__(key, parts, selection)
        self._scales = scales if key.leaf.startswith("grad") else ()

    def by_dtype(self) -> list[Series]:
        """The series itself, or one for each dtype if it has several; none if nothing was selected."""
        return [self] if len(self.dtypes) == 1 else [self.sel(dtype=dtype) for dtype in self.dtypes]

    def sel(self, *, epoch: Numbers = None, step: Numbers = None, rank: Numbers = None, dtype: Names = None, id: Samples = None) -> Series:  # noqa: A002  # it is called sel(id=...)
        """The captures at some places of the clock, or the rows of some samples.

        Args:
            epoch: a number, several, or a slice; a slice goes by value and leaves out its end.
            step: the same.
            rank: the same.
            dtype: torch's name, if the series changed its dtype.
            id: a sample id or several; only captures of steps that saw them are read, and only `rows` and `ids` give them.

        Raises:
            UsageError: a coordinate is chosen twice, or by something that is not a number.
        """
        return Series(self.key, self._parts, self._selection.narrowed(epoch=epoch, step=step, rank=rank, dtype=dtype, id=id), self._scales)

    def numpy(self, pad: complex | None = None) -> NDArray[Any]:
        """All captures as one array.

        Args:
            pad: what fills up captures that are smaller than the largest; by default they are refused.

        Returns:
            (captures, *shape), with `pad` of the largest size of each axis; bfloat16 and float8 as float32, exactly (`bits` has them as
            they are).

        Raises:
            RaggedSeries: the captures differ in shape, with `pad` in their number of axes.
            SeriesNotFound: the selection holds no capture.
            UsageError: the dtype of the captures has no such number.
        """
        return values(self.bits(), self.dtype) if pad is None else filled(self.masked(), pad)

    def masked(self) -> np.ma.MaskedArray[Any, Any]:
        """All captures as one array in which every place that a capture does not reach is masked.

        Returns:
            (captures, *shape), of the largest size of each axis.

        Raises:
            RaggedSeries: the captures differ in their number of axes.
            SeriesNotFound: the selection holds no capture.
        """
        return side_by_side(self._whole)

    @cached_property
    def loss_scale(self) -> NDArray[np.float64]:
        """(captures,) the scale of the loss whose backward gave each gradient; 1 if nothing scaled it."""
        return loss_scales([part.part() for part in self._scales], self.clocks) if self._scales else np.ones(len(self))

    def unscaled(self) -> NDArray[Any]:
        """All captures as one array, each divided by its loss scale: the gradients as the optimizer saw them.

        Returns:
            (captures, *shape); float16 and bfloat16 as float32, so that no small number is lost.

        Raises:
            UsageError: a transform whose result does not follow the scale, such as `histogram`, was applied.
            RaggedSeries: the captures differ in shape.
        """
        odd = nonlinear([part.part() for part in self._scales])
        if odd and (self.loss_scale != 1).any():
            raise UsageError(f"`{self.key}` went through {', '.join(f'`{kind}`' for kind in odd)}, whose result does not follow the scale")
        return divided(self.numpy(), self.loss_scale)

    def by_rank(self) -> SeriesOfRanks[Series]:
        """The series of each rank with captures; their `numpy` and `xarray` have an additional axis for ranks.

        Raises:
            SeriesNotFound: the selection holds no capture.
        """
        ranks = dict.fromkeys(sorted(self._some.clocks["rank"].tolist()))
        return SeriesOfRanks({rank: self.sel(rank=rank) for rank in ranks}, str(self.key))

    def full(self) -> NDArray[Any]:
        """All captures of a distributed tensor (DTensor), each put together from the parts of all ranks, as one array.

        Shards are joined, replicas are compared bit by bit, and partial values are summed, in double precision.

        Returns:
            (captures, *global shape), in clock order.

        Raises:
            UsageError: the tensor is not distributed, a rank is missing, replicas differ, or transforms were applied to the parts.
            RaggedSeries: the captures differ in shape.
        """
        found = [one.value for one in full_captures(self.key, self._whole.chosen)]
        if len({value.shape for value in found}) > 1:
            raise RaggedSeries(f"the captures of `{self.key}` differ in shape; choose a step with `.sel(step=...)`")
        return np.stack(found)

    def rows(self, mask: Series | None = None) -> NDArray[Any]:
        """All captures joined along their first axis, whatever their number of rows.

        Args:
            mask: a series taken in the same calls, whose axes are the first ones of this one; keeps what is true in it.

        Returns:
            (N, ...): N is the number of rows of all captures; with a mask, the number of places that are kept.

        Raises:
            RaggedSeries: the captures differ in more than their first axis, or do not fit the mask.
            SeriesNotFound: the selection holds no capture.
        """
        found = self._some
        if self._selection.id is not None:
            return self._rows_of_samples(self._selection.id, mask)
        if mask is not None:
            return sample_ids.masked(found, mask._captures)
        return found.rows()

    def bits(self) -> NDArray[Any]:
        """All captures as one array of the exact bits; see `numpy`. Complex numbers are pairs on a last axis."""
        return self._whole.stacked_bits()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The array of `numpy`, for functions of NumPy and of libraries that take what NumPy takes."""
        return np.asarray(self.numpy(), dtype)

    def torch(self) -> torch.Tensor:
        """All captures as one CPU tensor of the true dtype; see `numpy`. Quantized values come back as their integers.

        Raises:
            RaggedSeries: the captures differ in shape.
            MissingExtra: torch is not installed.
        """
        return tensor_of_bits(self.bits(), self.dtype)

    def xarray(self) -> xarray.DataArray:
        """All captures as a labelled array: (step, *dims) if they are of one shape, else (first dim or `row`, *dims).

        Raises:
            RaggedSeries: the captures differ in more than their first size.
            MissingExtra: xarray is not installed.
        """
        signature, attrs = self.signature, self.attrs | self.key._asdict() | {"torch_dtype": self.dtype}
        if signature.shape is not None and None not in signature.shape:
            return labelled_array(self.numpy(), self.clocks, signature, str(self.key), attrs, stacked=True)
        clocks = np.repeat(self.clocks, self._whole.row_sizes)
        return labelled_array(self.rows(), clocks, signature, str(self.key), attrs, stacked=False)

    def plot(self, ax: Any = None, capture: int = -1) -> Any:
        """Draw the captures over `global_step`: numbers as lines, a histogram over time, a vector as a heat map; or images of one capture.

        Args:
            ax: axes of matplotlib; by default those of a new figure.
            capture: of captures with two or more axes the one to draw, counted from the end if negative.

        Returns:
            The axes.

        Raises:
            SeriesNotFound: the selection holds no capture.
            MissingExtra: matplotlib is not installed.
            UsageError: the captures have another number of axes each.
        """
        _ = self._some
        return plot_series(self, ax, capture)

    def batches(self, elements: int = 1 << 20) -> Iterator[Batch]:
        """All captures in order in groups, for work on more captures than memory holds.

        Args:
            elements: the largest number of elements of a group; a larger capture is a group by itself.
        """
        return batches(self._whole, elements)

    def take(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """The captures at some indices, ascending and distinct, as one array (indices, *shape); reads no others.

        Raises:
            RaggedSeries: the captures of the series differ in shape.
        """
        self._whole.shared_sizes(0)
        return values(self._whole.at(indices).stacked_bits(), self.dtype)

    def leading_sizes(self, axes: int) -> NDArray[np.int64]:
        """(captures,) how many rows each capture has if its first `axes` axes are joined."""
        return self._whole.leading_sizes(axes)

    @property
    def ids(self) -> NDArray[Any]:
        """(N,) ids of the samples of `rows`, as the run recorded them.

        Raises:
            SeriesNotFound: the run recorded none, or the selection holds no capture.
            RaggedSeries: the rows are not one for each sample.
        """
        found = sample_ids.ids(self._some)
        return found if self._selection.id is None else found[sample_ids.among(found, self._selection.id)]

    @overload
    def __getitem__(self, index: int) -> Capture: ...
    @overload
    def __getitem__(self, index: slice) -> list[Capture]: ...
    def __getitem__(self, index: int | slice) -> Capture | list[Capture]:
        """The capture at a position, counted from the end if negative, or the captures of a range of positions.

        Raises:
            IndexError: there is no capture at the position.
            UsageError: the index is of another type, such as a list or a mask.
        """
        if isinstance(index, slice):
            return [self._whole[position] for position in range(*index.indices(len(self)))]
        return self._whole[_position(index)]

    def __iter__(self) -> Iterator[Capture]:
        """One capture after the other; memory is that of one."""
        return iter(self._whole)

    @property
    def _whole(self) -> SelectedCaptures:
        """The selected captures with all their samples."""
        if self._selection.id is not None:
            raise UsageError(f"`sel(id=...)` of `{self.key}` selects rows of captures; read them with .rows(), and their ids with .ids")
        return self._some

    def _rows_of_samples(self, wanted: frozenset[int | str], mask: Series | None) -> NDArray[Any]:
        """The rows of the selected samples; masks of other series do not fit them."""
        if mask is not None:
            raise UsageError("`rows` takes a mask or a selection by `id`, not both")
        return self._captures.rows()[sample_ids.among(sample_ids.ids(self._captures), wanted)]


def _position(index: Any) -> int:
    """The index of a capture as Python's integer; True and False are the elements of a mask."""
    if not isinstance(index, bool | np.bool_):
        with suppress(TypeError):
            return operator.index(index)
    raise UsageError(
        f"an index of a series is the position of a capture or a slice, not {index!r}; "
        "`series.sel(epoch=[0, 2], step=5)` selects captures, and `series.numpy()[...]` takes lists and masks"
    )
