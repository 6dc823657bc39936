"""One series in one file of a run, opened on demand."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from probes.capture_file.series_name import SeriesAddress
from probes.run_directory.attempts import ListedFile

if TYPE_CHECKING:  # NumPy, which takes longer to import than a list of a run takes
    from numpy.typing import NDArray

    from probes.capture_file.series_part import SeriesPart, StepColumn, StepIds


class PartSource(Protocol):
    """Opens the files of a run; or holds captures in memory."""

    def part(self, name: str, address: SeriesAddress) -> SeriesPart:
        """A series of a file."""

    def ids(self, name: str, phase: str) -> StepIds | None:
        """The sample ids of the steps of a phase of a file, if the run has them."""


class LazyPart:
    """A `SeriesPart` given by its file and its address.

    Attributes:
        entry: the file.
    """

    def __init__(self, source: PartSource, entry: ListedFile, address: SeriesAddress) -> None:
        self.entry = entry
        self._address = address
        self._source = source
        self._loaded: NDArray[Any] | None = None

    def part(self) -> SeriesPart:
        """The part; the run directory limits how many files stay open."""
        return self._source.part(self.entry.name, self._address)

    def load(self) -> None:
        """Read everything except the values, while the file is open."""
        self._loaded = self.part().clocks
        _ = self.dtype, self.shape, self.steps

    @property
    def clocks(self) -> NDArray[Any]:
        """(captures,) of `CLOCKS`."""
        return self.part().clocks if self._loaded is None else self._loaded

    @cached_property
    def dtype(self) -> str:
        """Torch's name of the dtype."""
        return self.part().dtype

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of every capture, or None if captures differ; see `SeriesPart.shape`."""
        return self.part().shape

    @cached_property
    def steps(self) -> StepColumn:
        """The step of every capture."""
        return self.part().steps

    def sample_ids(self) -> StepIds | None:
        """The sample ids of each step of the file, or None if the run has none."""
        return self._source.ids(self.entry.name, self._address.key.phase)
