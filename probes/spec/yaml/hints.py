"""What was meant where YAML is read otherwise, or not at all."""

from __future__ import annotations

NEAR = 80  # characters looked at around a missing value: a line may hold very many
CAUSES = {
    "mapping values are not allowed": "a value that holds `: ` must be quoted, or a line is indented too far",
    "end of stream": "a quote that begins here is not closed",
    "one word": "put a space behind the colon",
    "unexpected ':'": "put a space behind the colon",
    "cannot start any token": "a value that begins with this character must be quoted",
    "whitespace or line break": "a value that begins with `!` must be quoted",
    "unknown escape": "write two backslashes for one, or use single quotes, in which a backslash is nothing special",
    "node content": "a value is missing here, or `#` has made a comment of it",
    "could not find expected ':'": "a key without a colon; a key and its value are written `KEY: VALUE`",
    "did not find expected ',' or": "a bracket or a brace is not closed, or a comma is missing",
    "did not find expected key": "the line is indented by another amount than those it belongs to",
    "block end": "the line is indented by another amount than those it belongs to",
}


def cause(what: str, source: str, column: int) -> tuple[str, str]:
    """The code and the hint for what libyaml could not read."""
    token, before = source[column : column + 1], source[:column].rstrip()
    if "alias" in what or "alphabetic" in what or (token == "*" and "expected" in what):
        return "unquoted-glob", f'a pattern that begins with `*` must be quoted: "{_word(source, column)}"'
    glued = source[column - 1 : column] in ("}", "]") and token not in ("", " ", "}", "]")
    if "${" in source or glued or (token and token in "{[" and not before.endswith((":", ",", "-", "[", "{"))):
        return "unquoted-braces", f'a value with `${{`, `{{` or `[` in it must be quoted: "{_word(source, column)}"'
    if source[column - 1 : column] in ("'", '"') and token.strip() and token not in ",]}" and "expected" in what:
        return "not-yaml", "the quote ends before the value does; quote all of it"
    if token == ":" and "expected ','" in what:
        return "not-yaml", "a value that holds `: ` must be quoted"
    if token and token in "}]" and "expected key" in what:
        return "not-yaml", f"there is a `{token}` too many"
    return "not-yaml", next((hint for part, hint in CAUSES.items() if part in what), "")


def missing(name: str, source: str, column: int, below: str) -> str:
    """What to do about a key without a value, as it stands in its line; `below` is the next line that says anything."""
    before, after = source[max(column - NEAR, 0) : column].rstrip(), source[column : column + NEAR].lstrip()[:1]
    if ":" in name:
        return f"put a space behind the colon: {name.replace(':', ': ', 1)}"
    if after in (",", "}", "]") and not before.endswith(":"):
        return "a pattern or a text that begins with `{` or `?` must be quoted"
    if is_misindented(source, column, below):
        return f"write a value, or remove the key; what belongs to `{name}` must be indented further"
    return "write a value, or remove the key"


def is_misindented(source: str, column: int, below: str) -> bool:
    """Whether the line below a key without a value is indented as far as the key, so that it was probably meant to be its value."""
    return source[column : column + NEAR].lstrip()[:1] in ("", "#") and bool(below.strip()) and _indent(below) == _indent(source)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _word(source: str, column: int) -> str:
    """The text around a column that was meant as one value, with the brackets that belong to it."""
    start, depth = column, 0
    while start and (depth > 0 or source[start - 1] not in " \t,[{\"'"):
        start -= 1
        depth += (source[start] in "]}") - (source[start] in "[{")
    depth, end = 0, start
    while end < len(source) and (depth or source[end] not in " \t,]}"):
        depth += (source[end] in "[{") - (source[end] in "]}")
        end += 1
    return source[start:end]
