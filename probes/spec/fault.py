"""What does not go together within a part of a spec: every such fault of the part at once, each at its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Fault:
    """One thing that does not go together with another.

    Attributes:
        code: kebab-case name of the kind of problem.
        message: what was found, and what is allowed.
        at: the place, below the part that is validated.
        hint: what to do; may be empty.
        key: whether the caret points at the key rather than at its value.
    """

    code: str
    message: str
    at: tuple[str | int, ...] = ()
    hint: str = ""
    key: bool = False


def refuse(faults: Iterable[Fault]) -> None:
    """Raise what pydantic takes for one error, holding all the faults; nothing where there are none."""
    found = tuple(faults)
    if found:
        raise PydanticCustomError("faults", "{text}", {"text": "; ".join(fault.message for fault in found), "faults": found})


Faults = Iterator[Fault]
