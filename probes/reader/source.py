"""Where a series stands in one file of a run, and what was found out about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import ref

from probes.capture_file.series_name import Address
from probes.capture_file.series_part import Part, Steps
from probes.run_directory.listing import Directory, Entry


class About(NamedTuple):
    """What is asked of a part again and again, and stays known when its file is closed.

    Attributes:
        dtype: torch's name.
        shape: as in `Part`.
        steps: as in `Part`.
    """

    dtype: str
    shape: tuple[int, ...] | None
    steps: Steps


class Source:
    """A series in one file; all selections of the series share it.

    Attributes:
        entry: the file.
        address: of the series in it.
    """

    __slots__ = ("_about", "_directory", "_part", "address", "entry")

    def __init__(self, directory: Directory, entry: Entry, address: Address) -> None:
        self.entry = entry
        self.address = address
        self._directory = directory
        self._part: Callable[[], Part | None] = _nothing
        self._about: About | None = None

    def part(self) -> Part:
        """The part; its file is opened where it is not open."""
        part = self._part()  # no more than a weak reference: the directory decides which files stay open
        if part is None:
            part = self._directory.part(self.entry.name, self.address)
            self._part = ref(part)
        return part

    @property
    def about(self) -> About:
        """What is known of the part."""
        about = self._about
        if about is None:
            part = self.part()
            about = self._about = About(part.dtype, part.shape, part.steps)
        return about


def _nothing() -> None:
    """No part was asked for yet."""
