"""Values of arguments and options that several verbs take: a run, a number of seconds, a text or numbers that are given once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click


class RunPath(click.Path):
    """A run: its directory, a directory of runs, or one file.

    The verb itself looks at the path, so that the same mistake has the same exit code with every verb. An empty text is refused: it would
    mean the current directory, and is nearly always a variable of the shell that is not set.
    """

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text as a path."""
        if value == "":
            self.fail('the path is empty; "." is the current directory', param, ctx)
        return super().convert(value, param, ctx)


RUN_PATH = RunPath()


class Interval(click.FloatRange):
    """Seconds between two checks, from 0.1 to 3600; the range of click takes NaN, with which no time passes and no sleep works."""

    def __init__(self) -> None:
        super().__init__(0.1, 3600)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text as a number."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


INTERVAL = Interval()


def once(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> str | None:
    """The text of an option that is declared with `multiple`, so that a second one is an error and does not replace the first.

    Raises:
        click.BadParameter: it is given several times.
    """
    if len(texts) > 1:
        raise click.BadParameter(f"it is given {len(texts)} times ({', '.join(f'`{text}`' for text in texts)}); give it once")
    return texts[0] if texts else None


def numbers(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> int | slice | list[int] | None:
    """Parse an option into a selection for `sel`: `3`, `0,5,9` or `10:20`; a range excludes its end and may have a stride.

    Raises:
        click.BadParameter: the text has another form, or the option is given several times.
    """
    text = once(context, option, texts)
    if text is None:
        return None
    try:
        if ":" not in text:
            found = [_number(part) for part in text.split(",")]
            return found[0] if len(found) == 1 else found
        parts = [_number(part) if part else None for part in text.split(":")]
        if len(parts) <= 3 and parts[2:] != [0]:
            return slice(*parts)
    except ValueError:
        pass
    raise click.BadParameter(f"`{text}` is not a number (3), a list (0,5,9) or a range without its end (10:20)")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)
