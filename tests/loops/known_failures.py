"""The cases that fail as the package stands, each with its reason: `known_failures.txt`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest


@cache
def listed() -> dict[str, str]:
    """Name and reason of each."""
    lines = (Path(__file__).parent / "known_failures.txt").read_text().splitlines()
    return {name.strip(): why.strip() for name, _, why in (line.partition(": ") for line in lines if line and not line.startswith("#"))}


def known(name: str) -> pytest.MarkDecorator:
    """The mark of a case: expected to fail where it is listed. What hypothesis would shrink for minutes is not run then."""
    return pytest.mark.xfail(name in listed(), reason=listed().get(name, ""), run=name != "generated-attached")
