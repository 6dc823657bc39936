"""Printable text: characters that a person cannot see, and their replacements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from unicodedata import category

HIDDEN = frozenset(["Cc", "Cf", "Zl", "Zp", "Zs"])  # controls, formats such as bidirectional marks, and characters that look like a space
INDENT = "    "  # separator of the figures below a name
LEAST = 16  # least number of characters of a shortened name
LONGEST_ERROR = 2_000  # characters of the message of an exception
LEAST_NAMED = 32  # least number for the name of a row; a shorter one says too little
MOST_COMPARED = 2_000  # limit of rows whose names are compared; with more, shortened names may become equal
SENTENCE = 24  # a longer text may continue in the next line of a terminal
SEPARATORS = "./:@"  # between the words of a name
SEEN = frozenset("\t \u3000")  # the last is the space of ideographic scripts, as wide as their letters


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, in the plural unless the number is 1.

    Args:
        number: how many there are.
        noun: what is counted.
        plural: of a noun to which no `s` is added.
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers in short form: `0-2, 5`."""
    if not numbers:
        return "none"
    cuts = [0, *(index for index, (low, high) in enumerate(pairwise(numbers), 1) if high != low + 1), len(numbers)]
    parts = [numbers[first:last] for first, last in pairwise(cuts)]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def invisible(text: str) -> int | None:
    """The index of the first character that cannot be seen; None if absent."""
    if text.isprintable():
        return None
    return next((index for index, c in enumerate(text) if c not in SEEN and category(c) in HIDDEN), None)


def error_text(error: BaseException) -> str:
    """The message of an exception as a file can hold it, or the name of its class where it has none; its `__str__` may raise.

    Args:
        error: raised by any code, such as that of the program.
    """
    try:
        text = str(error)
    except Exception:  # code of the program, which may raise anything
        text = ""
    cut = f"{text[:LONGEST_ERROR]} ..." if len(text) > LONGEST_ERROR else text
    return storable(cut) or type(error).__name__


def storable(text: str) -> str:
    """The text as a file can hold it: halves of surrogate pairs, as in names that are not UTF-8, and NULs at the end become escapes."""
    kept = text.rstrip("\0")
    return kept.encode("utf-8", "backslashreplace").decode() + "\\x00" * (len(text) - len(kept))


def one_line(text: str) -> str:
    """The text on one line; characters that move the cursor, hide or reorder text are written as Python escapes.

    Everything that comes out of a file passes through here before it is printed.
    """
    if text.isprintable() and text.isascii():
        return text
    return "".join(c if _is_seen(c) else c.encode("unicode_escape").decode() for c in text)


def several_lines(text: str) -> str:
    """The text with its line breaks; each line as `one_line`."""
    return "\n".join(map(one_line, text.split("\n")))


def in_markdown(text: str) -> str:
    """The text for a cell of a Markdown table or between backticks, where it starts no markup and no HTML."""
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
    """A text of at most `width` characters; a longer text is shortened in the middle."""
    if len(text) <= width:
        return text
    kept = width - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def told_apart(names: Sequence[str], width: int) -> list[str]:
    """Names of at most `width` characters, or as many as are needed to keep different names different.

    Names of modules share their ends, such as `encoder.layer.` and `.weight:grad`; where the middle tells them apart, the ends go.
    """
    words, most = set(names), max(map(len, names), default=0)
    for size in range(width, most):
        for cut in (_middles, _tails, _cores):
            found = cut(words, size)
            if len(set(found.values())) == len(words):
                return [found[name] for name in names]
    return list(names)


def _middles(names: Iterable[str], width: int) -> dict[str, str]:
    return {name: shortened(name, width) for name in names}


def _tails(names: Iterable[str], width: int) -> dict[str, str]:
    return {name: name if len(name) <= width else f"…{name[len(name) - width + 1 :]}" for name in names}


def _cores(names: Iterable[str], width: int) -> dict[str, str]:
    """Shorten long names by the words that all of them begin and end with, then in the middle."""
    long = [name for name in names if len(name) > width]
    head, tail = len(_shared(long)), len(_shared([name[::-1] for name in long]))
    return {name: name if len(name) <= width else _window(name, head, len(name) - tail, width) for name in names}


def _window(name: str, start: int, stop: int, width: int) -> str:
    """The part of a name from `start` to `stop`, extended to both sides as far as there is space."""
    room = width - 2 - (stop - start)  # both marks of omitted text
    if start >= stop or room < 0:
        return shortened(f"…{name[start:stop]}…" if start < stop else name, width)
    after = min(len(name) - stop, room - min(start, room // 2))
    before = min(start, room - after)
    begin, end = start - before, stop + after
    return f"{'…' if begin else ''}{name[begin:end]}{'…' if end < len(name) else ''}"


def _shared(names: Sequence[str]) -> str:
    """The common beginning of all of them, up to and including a separator."""
    first, last = min(names, default=""), max(names, default="")
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: 1 + max(first.rfind(mark, 0, same) for mark in SEPARATORS)]


def aligned(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Sequence[str] = (),
    width: int | None = None,
    kept: Sequence[str] = (),
    named: str = "",
) -> list[str]:
    """The lines of a table.

    Args:
        header: names of the columns.
        rows: one text per column.
        right: names of the right-aligned columns, which are never shortened.
        width: most characters of a line; names in the widest columns lose their middle until it fits. None for any width.
        kept: names of further columns that are never shortened, such as sentences.
        named: the column whose names stay distinct; the first one if empty. Where they have no room for that, they get lines of their own.
    """
    columns = [list(column) for column in zip(header, *([one_line(cell) for cell in row] for row in rows), strict=True)]
    full = [max(map(len, column)) for column in columns]
    widths = [min(size, SENTENCE) if name in kept else size for name, size in zip(header, full, strict=True)]
    if width is None or _total(widths) <= width:
        return _lines(header, columns, right)
    fixed = [name in right or name in kept for name in header]
    least = [len(name) if not keep else size for name, size, keep in zip(header, widths, fixed, strict=True)]
    key = header.index(named or header[0])
    if fixed[key] or len(columns[key]) > MOST_COMPARED:
        found = _fitting(widths, least, width)
    else:
        least[key] = max(least[key], min(widths[key], LEAST_NAMED))
        columns[key] = told_apart(columns[key], _fitting(widths, least, width)[key])
        widths[key] = least[key] = max(map(len, columns[key]))
        found = _fitting(widths, least, width)
        if _total(found) > width and full[key] > LEAST:
            return _stacked(header, rows, right, width, kept, key)
    found = [size if name in kept else fitted for name, size, fitted in zip(header, full, found, strict=True)]
    columns = [[shortened(cell, size) for cell in column] for column, size in zip(columns, found, strict=True)]
    return _lines(header, columns, right)


def _stacked(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str], width: int, kept: Sequence[str], key: int
) -> list[str]:
    """The lines of a table with each name on a line, and the other columns of its row below it."""
    cells = [list(row) for row in rows]
    names = told_apart([header[key], *(one_line(row.pop(key)) for row in cells)], width)
    others = [name for at, name in enumerate(header) if at != key]
    below = aligned(others, cells, right, width - len(INDENT), kept)
    return [f"{name}\n{INDENT}{line}" for name, line in zip(names, below, strict=True)]


def _lines(header: Sequence[str], columns: Sequence[Sequence[str]], right: Sequence[str]) -> list[str]:
    sizes = [max(map(len, column)) for column in columns]
    cells = [
        [cell.rjust(size) if name in right else cell.ljust(size) for cell in column]
        for name, size, column in zip(header, sizes, columns, strict=True)
    ]
    return ["  ".join(line).rstrip() for line in zip(*cells, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fitting(widths: list[int], least: list[int], width: int) -> list[int]:
    """Widths of columns that fit into a line; the widest column is reduced first."""
    found = list(widths)
    floors = [min(size, max(low, LEAST)) for size, low in zip(widths, least, strict=True)]
    while _total(found) > width and (open_columns := [at for at, size in enumerate(found) if size > floors[at]]):
        found[max(open_columns, key=lambda at: found[at])] -= 1
    return found


def _is_seen(c: str) -> bool:
    kind = category(c)
    return c in SEEN or not (kind in HIDDEN or kind in ("Cs", "Co", "Cn")) or c == " "
