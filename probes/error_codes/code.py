"""The explanation of an error code."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """A row of the table.

    Attributes:
        meaning: what is wrong, in a sentence.
        wrong: a spec that has this problem, or those lines of a spec; empty if no spec can show it.
        right: the same, corrected.
        advice: why it happens, and what to do; may be empty if the example says it.
    """

    meaning: str
    wrong: str = ""
    right: str = ""
    advice: str = ""
