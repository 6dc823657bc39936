"""Text that can be shown: which characters a person cannot see, and what is shown instead of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import category

HIDDEN = frozenset(["Cc", "Cf", "Zl", "Zp", "Zs"])  # controls, formats such as bidirectional marks, and what looks like a space
LEAST = 16  # characters that are left of a name at least
SEEN = frozenset("\t \u3000")  # the last is the space of ideographic scripts, as wide as their letters


def invisible(text: str) -> int | None:
    """The index of the first character that cannot be seen; None if absent."""
    if text.isprintable():
        return None
    return next((index for index, c in enumerate(text) if c not in SEEN and category(c) in HIDDEN), None)


def one_line(text: str) -> str:
    """The text on one line, without what moves a cursor, hides or reorders characters: they are written as Python escapes.

    Everything that comes out of a file passes through here before it is printed.
    """
    if text.isprintable() and text.isascii():
        return text
    return "".join(c if _is_seen(c) else c.encode("unicode_escape").decode() for c in text)


def several_lines(text: str) -> str:
    """The text with its line breaks; each line as `one_line`."""
    return "\n".join(map(one_line, text.split("\n")))


def in_markdown(text: str) -> str:
    """The text in a cell of a Markdown table or between backticks, where it starts no markup and no HTML."""
    safe = one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("`", "'").replace("&", "&amp;").replace("<", "&lt;")
    return safe.replace("[", "\\[").replace("!", "\\!")


def in_html(text: str) -> str:
    """The text inside an element or a quoted attribute of HTML."""
    return escape(one_line(text), quote=True)


def html_lines(text: str) -> str:
    """Lines of text for a notebook, as a terminal shows them."""
    escaped = "\n".join(map(in_html, text.split("\n")))
    return f"<pre>{escaped}</pre>"


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table for a notebook; names that look like markup stay text.

    Args:
        header: names of the columns.
        rows: one value per column.
        caption: a line above the table.
    """
    head = "".join(f"<th>{in_html(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{in_html(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    above = f"<caption>{in_html(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shortened(text: str, width: int) -> str:
    """A text of at most `width` characters; what is too long loses its middle."""
    if len(text) <= width:
        return text
    kept = width - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def aligned(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (), width: int | None = None, kept: Sequence[str] = ()
) -> list[str]:
    """The lines of a table.

    Args:
        header: names of the columns.
        rows: one text per column.
        right: names of the right-aligned columns, which are never shortened.
        width: most characters of a line; names in the widest columns lose their middle until it fits. None for any width.
        kept: names of further columns that are never shortened, such as sentences.
    """
    columns = list(zip(header, *([one_line(cell) for cell in row] for row in rows), strict=True))
    widths = [max(map(len, column)) for column in columns]
    if width is not None:
        fixed = [name in right or name in kept for name in header]
        widths = _fitting(widths, [len(name) if not keep else size for name, size, keep in zip(header, widths, fixed, strict=True)], width)
    cells = [
        [shortened(cell, size).rjust(size) if name in right else shortened(cell, size).ljust(size) for cell in column]
        for name, size, column in zip(header, widths, columns, strict=True)
    ]
    return ["  ".join(line).rstrip() for line in zip(*cells, strict=True)]


def _fitting(widths: list[int], least: list[int], width: int) -> list[int]:
    """Widths of columns that fit a line, as far as each may become narrower: the widest gives way first."""
    found, room = list(widths), width - 2 * (len(widths) - 1)
    floors = [min(size, max(low, LEAST)) for size, low in zip(widths, least, strict=True)]
    while sum(found) > room and (open_columns := [at for at, size in enumerate(found) if size > floors[at]]):
        found[max(open_columns, key=lambda at: found[at])] -= 1
    return found


def _is_seen(c: str) -> bool:
    kind = category(c)
    return c in SEEN or not (kind in HIDDEN or kind in ("Cs", "Co", "Cn")) or c == " "
