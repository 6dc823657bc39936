"""Likely causes of YAML errors, as hints."""

from __future__ import annotations

NEAR = 80  # limit of characters searched around a missing value: a line may be very long
CAUSES = {
    "mapping values are not allowed": "a value that holds `: ` must be quoted, or a line is indented too far",
    "end of stream": "the quote that starts here is not closed",
    "one word": "write a space after the colon",
    "unexpected ':'": "write a space after the colon",
    "cannot start any token": "a value that starts with this character must be quoted",
    "whitespace or line break": "a value that starts with `!` must be quoted",
    "unknown escape": "write two backslashes, or use single quotes, where a backslash is an ordinary character",
    "node content": "a value is missing here, or `#` starts a comment",
    "could not find expected ':'": "a colon is missing; write `KEY: VALUE`",
    "did not find expected ',' or": "a bracket or a brace is not closed, or a comma is missing",
    "did not find expected key": "the indentation differs from that of the other keys of this mapping",
    "block end": "the indentation differs from that of the other keys of this mapping",
}


def cause(what: str, source: str, column: int) -> tuple[str, str]:
    """The code and the hint for an error of libyaml."""
    token, before = source[column : column + 1], source[:column].rstrip()
    if "alias" in what or "alphabetic" in what or (token == "*" and "expected" in what):
        return "unquoted-glob", f'a glob that starts with `*` must be quoted: "{_word(source, column)}"'
    glued = source[column - 1 : column] in ("}", "]") and token not in ("", " ", "}", "]")
    if "${" in source or glued or (token and token in "{[" and not before.endswith((":", ",", "-", "[", "{"))):
        return "unquoted-braces", f'a value with `${{`, `{{` or `[` in it must be quoted: "{_word(source, column)}"'
    if source[column - 1 : column] in ("'", '"') and token.strip() and token not in ",]}" and "expected" in what:
        return "not-yaml", "the quote ends before the value ends; quote the whole value"
    if token == ":" and "expected ','" in what:
        return "not-yaml", "a value that holds `: ` must be quoted"
    if token and token in "}]" and "expected key" in what:
        return "not-yaml", f"there is one `{token}` too many"
    return "not-yaml", next((hint for part, hint in CAUSES.items() if part in what), "")


def missing(name: str, source: str, column: int, below: str) -> str:
    """Advice for a key without a value, given its line; `below` is the next line that is not empty."""
    before, after = source[max(column - NEAR, 0) : column].rstrip(), source[column : column + NEAR].lstrip()[:1]
    if ":" in name:
        return f"write a space after the colon: {name.replace(':', ': ', 1)}"
    if after in (",", "}", "]") and not before.endswith(":"):
        return "a value that starts with `{` or `?` must be quoted"
    if is_misindented(source, column, below):
        return f"write a value, or remove the key; what belongs to `{name}` must be indented further"
    return "write a value, or remove the key"


def is_misindented(source: str, column: int, below: str) -> bool:
    """Whether the line below a key without a value is indented like the key, so that it was probably meant as its value."""
    return source[column : column + NEAR].lstrip()[:1] in ("", "#") and bool(below.strip()) and _indent(below) == _indent(source)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _word(source: str, column: int) -> str:
    """The text around a column that was meant as one value, with its brackets."""
    start, depth = column, 0
    while start and (depth > 0 or source[start - 1] not in " \t,[{\"'"):
        start -= 1
        depth += (source[start] in "]}") - (source[start] in "[{")
    depth, end = 0, start
    while end < len(source) and (depth or source[end] not in " \t,]}"):
        depth += (source[end] in "[{") - (source[end] in "]}")
        end += 1
    return source[start:end]
