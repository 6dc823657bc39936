"""The selection of captures: phases, epochs, steps, ranks and dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import maxsize
from typing import Any, NamedTuple

from probes.errors import UsageError

Numbers = int | slice | Sequence[int] | None
Names = str | Sequence[str] | None
Samples = int | str | Sequence[int | str] | None


class Selection(NamedTuple):
    """The coordinates that `sel` selects; None selects everything.

    A slice goes by value and leaves out its end: `slice(10, 20)` is 10 to 19, whichever of them there are. Epochs are
    those of files: the few captures that came after their epoch had ended stand with the next, and keep their own clock.

    Attributes:
        phase: one or more names.
        epoch: one number, several, or a slice.
        step: the same.
        rank: the same.
        dtype: one or more of torch's names.
        id: one or more sample ids, as the loop recorded them.
    """

    phase: Names = None
    epoch: Numbers = None
    step: Numbers = None
    rank: Numbers = None
    dtype: Names = None
    id: Samples = None

    def narrowed(self, **asked: Any) -> Selection:
        """The same selection with some coordinates chosen.

        Raises:
            UsageError: a coordinate is chosen twice, or by something that is not a number.
        """
        given = {name: value for name, value in asked.items() if value is not None}
        for name, value in given.items():
            if getattr(self, name) is not None:
                raise UsageError(f"`{name}` is already selected ({getattr(self, name)!r}); select from the run once more")
            if name not in ("phase", "dtype", "id"):
                _check(name, value)
        return self._replace(**given)

    @property
    def words(self) -> str:
        """The selection in words; empty if everything is selected."""
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items() if value is not None)

    def has_phase(self, phase: str) -> bool:
        """Whether a phase is selected."""
        return _named(self.phase, phase)

    def has_dtype(self, dtype: str) -> bool:
        """Whether a dtype is selected."""
        return _named(self.dtype, dtype)

    def has_file(self, epoch: int, rank: int) -> bool:
        """Whether the file of an epoch and a rank is selected."""
        return (self.epoch is None or _includes(self.epoch, epoch)) and (self.rank is None or _includes(self.rank, rank))


def _includes(wanted: Numbers, number: int) -> bool:
    if isinstance(wanted, slice):
        return number in range(wanted.start or 0, maxsize if wanted.stop is None else wanted.stop, wanted.step or 1)
    return wanted is None or (number in wanted if isinstance(wanted, Iterable) else number == wanted)


def _named(wanted: Names, name: str) -> bool:
    return wanted is None or name == wanted or (not isinstance(wanted, str) and name in wanted)


def _check(name: str, value: object) -> None:
    numbers: Iterable[object] = (value,)
    if isinstance(value, slice):
        numbers = (part for part in (value.start, value.stop, value.step) if part is not None)
        if value.step is not None and value.step < 1:
            raise UsageError(f"`{name}` needs a slice with a positive step; {value!r} has the step {value.step}")
    elif isinstance(value, Iterable) and not isinstance(value, str):
        numbers = value
    for number in numbers:
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise UsageError(f"`{name}` takes a number, a list of numbers or a slice, not {value!r}")
        if int(number) < 0:
            raise UsageError(f"`{name}` counts from 0; {value!r} is below 0")
