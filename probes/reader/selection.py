"""The selection of captures: phases, epochs, steps, ranks, dtypes and samples."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import index
from sys import maxsize
from typing import Any, NamedTuple

from probes.errors import SeriesNotFound, UsageError, nearest
from probes.printable import shortened, spans
from probes.signature import DTYPES

Numbers = int | slice | Iterable[int] | None  # what callers give; a `Selection` holds the types below
Names = str | Iterable[str] | None
Samples = int | str | Iterable[int | str] | None

Places = int | slice | frozenset[int]
Words = str | frozenset[str]

MOST_SHOWN = 5
LONGEST_LIST = 100  # characters


class Selection(NamedTuple):
    """The coordinates that `sel` selects; None selects everything.

    A slice goes by value and leaves out its end: `slice(10, 20)` is 10 to 19, whichever of them there are. Epochs are
    those of files: the few captures that came after their epoch had ended stand with the next, and keep their own clock.

    Each is a plain immutable value, which `narrowed` makes once of what a caller gives.

    Attributes:
        phase: one or more names.
        epoch: one number, several, or a slice.
        step: the same.
        rank: the same.
        dtype: one or more of torch's names.
        id: one or more sample ids, as the loop recorded them.
    """

    phase: Words | None = None
    epoch: Places | None = None
    step: Places | None = None
    rank: Places | None = None
    dtype: Words | None = None
    id: frozenset[int | str] | None = None

    def narrowed(self, **asked: Any) -> Selection:
        """The same selection with some coordinates chosen.

        Raises:
            UsageError: a coordinate is chosen twice, or by something of another type.
        """
        given = {name: _MADE[name](name, value) for name, value in asked.items() if value is not None}
        for name in given:
            if getattr(self, name) is not None:
                raise UsageError(f"`{name}` is already selected ({_shown(name, getattr(self, name))}); select from the run once more")
        return self._replace(**given)

    @property
    def words(self) -> str:
        """The selection in words; empty if everything is selected."""
        return ", ".join(_shown(name, value) for name, value in self._asdict().items() if value is not None)

    def has_phase(self, phase: str) -> bool:
        """Whether a phase is selected."""
        return _named(self.phase, phase)

    def has_dtype(self, dtype: str) -> bool:
        """Whether a dtype is selected."""
        return _named(self.dtype, dtype)

    def has_file(self, epoch: int, rank: int) -> bool:
        """Whether the file of an epoch and a rank is selected."""
        return _includes(self.epoch, epoch) and _includes(self.rank, rank)

    def require_places(self, what: str, files: Iterable[tuple[int, int]]) -> None:
        """Require that each selected epoch and rank has a file, whichever other; of a slice that one has.

        Args:
            what: the run, for the message.
            files: epoch and rank of every file.

        Raises:
            SeriesNotFound: one has none; the message says which there are.
        """
        if self.epoch is None and self.rank is None:
            return
        places = [*files]
        for at, name, wanted in ((0, "epoch", self.epoch), (1, "rank", self.rank)):
            there = {place[at] for place in places}
            lacking = _lacking(wanted, there)
            if lacking is not None:
                known = shortened(spans(sorted(there)), LONGEST_LIST)
                raise SeriesNotFound(f"{what} has no capture in this selection ({_shown(name, lacking)}); {name}s of its files: {known}")


def sample_ids(name: str, given: Any) -> frozenset[int | str]:
    """One or more sample ids: integers and texts, also those of NumPy and torch.

    Raises:
        UsageError: something else is given.
    """
    found = [(_integer(one), _text(one), one) for one in _several(given)]
    for number, text, one in found:
        if number is None and text is None:
            raise UsageError(f"`{name}` takes sample ids, which are integers or texts, not {one!r}")
    return frozenset(number if number is not None else str(text) for number, text, _ in found)


def numbers(name: str, given: Any) -> Places:
    """A number, several, or a slice by value.

    Raises:
        UsageError: something else is given, or a number below 0.
    """
    if not isinstance(given, slice):
        found = [_number(name, one, given) for one in _several(given)]
        return found[0] if _is_single(given) else frozenset(found)
    start, stop, step = (None if part is None else _number(name, part, given) for part in (given.start, given.stop, given.step))
    if step == 0:
        raise UsageError(f"`{name}` needs a slice with a positive step; {given!r} has the step 0")
    return slice(start, stop, step)


def _names(name: str, given: Any) -> Words:
    found = [_text(one) for one in _several(given)]
    texts = [text for text in found if text is not None]
    if len(texts) < len(found):
        raise UsageError(f"`{name}` takes a name or a list of names, not {given!r}")
    return texts[0] if _is_single(given) else frozenset(texts)


def _dtypes(name: str, given: Any) -> Words:
    """Torch's names of dtypes, also by the dtypes themselves."""
    names = _names(name, [str(one) if type(one).__module__ == "torch" else one for one in _several(given)])
    known = frozenset(word.removeprefix("torch.") for word in names)
    for word in sorted(known - DTYPES.keys()):
        raise UsageError(f"`{name}` takes torch's names of dtypes, such as `float32`, not `{word}`; {nearest(word, DTYPES)}".rstrip("; "))
    return min(known) if _is_single(given) else known


def _is_single(given: Any) -> bool:
    """Whether a value means one thing, and not a collection; an array without axes is iterable, and has no iterator."""
    if isinstance(given, str | bytes | Mapping) or _integer(given) is not None or not isinstance(given, Iterable):
        return True
    return getattr(given, "shape", None) == ()


def _several(given: Any) -> list[Any]:
    """The values of a collection, or the single one; an iterator is read to its end."""
    return [given] if _is_single(given) else list(given)


def _integer(given: Any) -> int | None:
    """The integer that a value of Python, NumPy or torch is; a truth value is not one."""
    if type(given) is int:
        return given
    if isinstance(given, bool) or "bool" in str(getattr(given, "dtype", "")):
        return None
    try:
        return index(given)
    except TypeError:
        return None


def _number(name: str, one: Any, given: Any) -> int:
    found = _integer(one)
    if found is None:
        raise UsageError(f"`{name}` takes a number, a list of numbers or a slice, not {given!r}")
    if found < 0:
        raise UsageError(f"`{name}` counts from 0; {given!r} is below 0")
    if found > maxsize:
        raise UsageError(f"`{name}` takes numbers up to {maxsize}; {found} is above")
    return found


def _text(one: Any) -> str | None:
    """The text that a value is, also of an array of NumPy without axes."""
    found = one.item() if getattr(one, "shape", None) == () else one
    return str(found) if isinstance(found, str) else None


_MADE: dict[str, Any] = {"phase": _names, "dtype": _dtypes, "id": sample_ids, **dict.fromkeys(("epoch", "step", "rank"), numbers)}


def _shown(name: str, value: Any) -> str:
    """A coordinate in words: `epoch 3`, `epochs 0, 5`, `epochs 2:5`."""
    if isinstance(value, slice):
        start, stop = ("" if part is None else str(part) for part in (value.start, value.stop))
        by = "" if value.step is None else f":{value.step}"
        empty = ", which is empty" if value.stop is not None and (value.start or 0) >= value.stop else ""
        return f"{name}s {start}:{stop}{by}{empty}"
    if not isinstance(value, frozenset):
        return f"{name} {value}"
    several = [repr(one) if name == "id" else str(one) for one in sorted(value, key=lambda one: (isinstance(one, str), one))]
    more = f" and {len(several) - MOST_SHOWN} more" if len(several) > MOST_SHOWN else ""
    return f"{name}s {', '.join(several[:MOST_SHOWN])}{more}" if several else f"an empty list of {name}s"


def _includes(wanted: Places | None, number: int) -> bool:
    if isinstance(wanted, slice):
        return number in range(wanted.start or 0, maxsize if wanted.stop is None else wanted.stop, wanted.step or 1)
    return wanted is None or (number in wanted if isinstance(wanted, frozenset) else number == wanted)


def _lacking(wanted: Places | None, there: Collection[int]) -> Places | None:
    """The selected numbers that are not there; a slice lacks nothing if one of its numbers is there."""
    if isinstance(wanted, slice):
        return None if any(_includes(wanted, number) for number in there) else wanted
    numbers = frozenset() if wanted is None else wanted if isinstance(wanted, frozenset) else frozenset([wanted])
    absent = numbers.difference(there)
    return None if not absent else min(absent) if len(absent) == 1 else absent


def _named(wanted: Words | None, name: str) -> bool:
    return wanted is None or (name in wanted if isinstance(wanted, frozenset) else name == wanted)
