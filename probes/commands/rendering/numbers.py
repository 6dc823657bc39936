"""Parse the values of `--epoch` and `--step`: `3`, `0,5,9` or `10:20`, given once."""

from __future__ import annotations

import click


def once(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> str | None:
    """The text of an option that is declared with `multiple`, so that a second one is an error and does not replace the first.

    Raises:
        click.BadParameter: it is given several times.
    """
    if len(texts) > 1:
        raise click.BadParameter(f"it is given {len(texts)} times ({', '.join(f'`{text}`' for text in texts)}); give it once")
    return texts[0] if texts else None


def numbers(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> int | slice | list[int] | None:
    """Parse an option into a selection for `sel`; a range excludes its end and may have a stride.

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
