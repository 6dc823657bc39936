"""Text that can be shown: which characters a person cannot see, and what is shown instead of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import category

HIDDEN = frozenset(["Cc", "Cf", "Zl", "Zp", "Zs"])  # controls, formats such as bidirectional marks, and what looks like a space
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


def _is_seen(c: str) -> bool:
    kind = category(c)
    return c in SEEN or not (kind in HIDDEN or kind in ("Cs", "Co", "Cn")) or c == " "
