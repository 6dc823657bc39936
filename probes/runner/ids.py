"""Sample ids as a loop has them, and as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def plain_ids(ids: Iterable[Any]) -> list[int | str]:
    """Ids as whole numbers and texts.

    Args:
        ids: numbers, texts, a tensor or an array of them; anything else is stored as its `str`.
    """
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    return [_plain(one) for one in (listed if isinstance(listed, Iterable) else [listed])]


def _plain(one: Any) -> int | str:
    if hasattr(one, "tolist"):  # of one number, in a list
        one = one.tolist()
    return int(one) if isinstance(one, int) and not isinstance(one, bool) else str(one)
