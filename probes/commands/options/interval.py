"""A number of seconds between two checks, on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class Interval(click.FloatRange):
    """Seconds from 0.1 to 3600; the range of click takes NaN, with which no time passes and no sleep works."""

    def __init__(self) -> None:
        super().__init__(0.1, 3600)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text as a number."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


INTERVAL = Interval()
