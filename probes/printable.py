"""Text that can be shown: which characters a person cannot see."""

from __future__ import annotations

from unicodedata import category

HIDDEN = frozenset(["Cc", "Cf", "Zl", "Zp", "Zs"])  # controls, formats such as bidirectional marks, and what looks like a space
SEEN = frozenset("\t \u3000")  # the last is the space of ideographic scripts, as wide as their letters


def invisible(text: str) -> int | None:
    """The index of the first character that cannot be seen; None if absent."""
    if text.isprintable():
        return None
    return next((index for index, c in enumerate(text) if c not in SEEN and category(c) in HIDDEN), None)
