"""Blocks of a page, written as Markdown or as HTML; every text is escaped in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from probes.printable import in_html, in_markdown

STYLE = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse}"
STYLE += "td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top;overflow-wrap:anywhere}"


class Heading(NamedTuple):
    """A heading; level 1 is the title of the page."""

    text: str
    level: int = 2


class Table(NamedTuple):
    """A table; without rows it is left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Paragraph(NamedTuple):
    """Sentences."""

    text: str


Block: TypeAlias = Heading | Table | Paragraph


def markdown(blocks: Iterable[Block]) -> str:
    """The page as Markdown."""
    return "\n\n".join(filter(None, map(_markdown, blocks))) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {in_markdown(block.text)}"
    if isinstance(block, Paragraph):
        return in_markdown(block.text)
    lines = [block.columns, ["---"] * len(block.columns), *block.rows] if block.rows else []
    return "\n".join(f"| {' | '.join(cell if cell == '---' else in_markdown(cell) for cell in line)} |" for line in lines)


def html(blocks: Sequence[Block]) -> str:
    """The page as one HTML document, without scripts and without external resources."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    head = f'<meta charset="utf-8">{policy}<title>{in_html(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{fragment(blocks)}</body></html>\n'


def fragment(blocks: Iterable[Block]) -> str:
    """The blocks as HTML without a document around them."""
    return "".join(map(_html, blocks))


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{in_html(block.text)}</h{block.level}>\n"
    if isinstance(block, Paragraph):
        return f"<p>{in_html(block.text)}</p>\n"
    if not block.rows:
        return ""
    rows = [_row("th", block.columns), *(_row("td", row) for row in block.rows)]
    return f"<table>\n{''.join(rows)}</table>\n"


def _row(kind: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{in_html(cell)}</{kind}>' for cell in cells)}</tr>\n"
