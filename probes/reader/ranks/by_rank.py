"""One series with an additional axis for its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from probes.errors import RaggedSeries
from probes.optional_package import import_optional
from probes.printable import html_table

if TYPE_CHECKING:
    import xarray

TIMES = ["epoch", "step", "microstep", "call", "backward"]


class RankSeries(Protocol):
    """The captures of one rank, as `Series` has them."""

    @property
    def clocks(self) -> NDArray[Any]:
        """(captures,) of `CLOCKS`."""

    def numpy(self, pad: complex | None = None) -> NDArray[Any]:
        """(captures, *shape)."""

    def xarray(self) -> xarray.DataArray:
        """(step, *dims)."""


Of = TypeVar("Of", bound=RankSeries)


class SeriesOfRanks(Mapping[int, Of]):
    """One series of each rank, by rank.

    Args:
        series: the series of each rank, ascending.
        name: of the series, for messages.
    """

    def __init__(self, series: Mapping[int, Of], name: str) -> None:
        self._series = dict(series)
        self._name = name

    def numpy(self) -> NDArray[Any]:
        """All captures as one array.

        Returns:
            (ranks, captures, *shape); the ranks are the keys, in order.

        Raises:
            RaggedSeries: the ranks have captures at other clocks, or of other shapes.
        """
        self._require_one_clock()
        found = [series.numpy() for series in self.values()]
        if len({values.shape for values in found}) > 1:
            shapes = ", ".join(dict.fromkeys(str(values.shape[1:]) for values in found))
            raise RaggedSeries(
                f"the captures of `{self._name}` have the shapes {shapes} on different ranks; `.full()` joins the parts of a DTensor"
            )
        return np.stack(found)

    def xarray(self) -> xarray.DataArray:
        """All captures as one array (rank, step, *dims).

        Raises:
            RaggedSeries: the ranks have captures at other clocks, or of other shapes.
            MissingExtra: xarray is not installed.
        """
        package = import_optional("xarray", "xarray", "`SeriesOfRanks.xarray`")
        self.numpy()  # raises an error of this package if something does not fit
        arrays = [series.xarray().drop_vars("rank") for series in self.values()]
        found: xarray.DataArray = package.concat(
            arrays, package.Variable("rank", list(self)), coords="minimal", compat="override", join="override"
        )
        return found.assign_coords(rank=list(self))

    def _require_one_clock(self) -> None:
        (first, one), *others = self.items()
        for rank, series in others:
            if not np.array_equal(one.clocks[TIMES], series.clocks[TIMES]):
                raise RaggedSeries(
                    f"`{self._name}` has captures at other clocks on rank {rank} than on rank {first}; read each rank by itself"
                )

    def __getitem__(self, rank: int) -> Of:
        return self._series[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return f"<SeriesOfRanks {self._name}: ranks {', '.join(map(str, self))}>"

    def _repr_html_(self) -> str:
        return html_table(("rank", "captures"), [(rank, len(series.clocks)) for rank, series in self._series.items()], self._name)
