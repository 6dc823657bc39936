"""Parse the values of `--epoch` and `--step`: `3`, `0,5,9` or `10:20`."""

from __future__ import annotations

import click


def numbers(context: click.Context, option: click.Parameter, text: str | None) -> int | slice | list[int] | None:
    """Parse an option into a selection for `sel`; a range excludes its end and may have a stride.

    Raises:
        click.BadParameter: the text has another form.
    """
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
