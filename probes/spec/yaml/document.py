"""A YAML document as plain data, with the place of every key and value; its plain scalars are those of YAML 1.2."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from probes.errors import Problem

Path = tuple[str | int, ...]
MAX_DIGITS = 18
KINDS = {bool: "a boolean", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "a mapping"}


@dataclass(frozen=True)
class Mark:
    """The place of a key or a value.

    Attributes:
        file: the file as the user named it.
        line: 1-based.
        column: 1-based, in characters.
        width: characters that the caret line underlines.
        source: the line.
    """

    file: str
    line: int
    column: int
    width: int
    source: str


@dataclass
class Document:
    """Plain data and the place of each part of it.

    Attributes:
        data: mappings, lists, texts, whole numbers, finite numbers and booleans.
        keys: path -> place of the key (or of the list's item).
        values: path -> place of the value.
        problems: what is wrong with it so far.
        unreadable: the paths at which something is wrong.
    """

    data: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[Path] = field(default_factory=set)

    def copy(self) -> Document:
        """The document again, with its own data, places and problems."""
        return Document(deepcopy(self.data), dict(self.keys), dict(self.values), list(self.problems), set(self.unreadable))

    def refuse(self, path: Path, problem: Problem) -> None:
        """Add a problem; the value at its path cannot be read."""
        self.problems.append(problem.at(path=".".join(map(str, path))))
        self.unreadable.add(path)

    def at(self, path: Path, *, key: bool = False) -> Mark | None:
        """The place of a path, or of its nearest parent with a place."""
        for length in range(len(path), -1, -1):
            part = path[:length]
            mark = (self.keys if key or length < len(path) else self.values).get(part) or self.values.get(part)
            if mark is not None:
                return mark
        return None


def plain(text: str) -> str | int | float | bool:
    """Convert a plain scalar by the YAML 1.2 core schema; the caller handles nulls.

    Raises:
        ValueError: it looks like a number, but of a kind that is not allowed; the message says which.
    """
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    body = text.lstrip("+-") if text[:1] in "+-" and text[1:2].isdigit() else text
    digits = body.replace("_", "")
    if _digits(body):
        if len(body) > MAX_DIGITS:
            raise ValueError(f"the number has {len(body)} digits; at most {MAX_DIGITS} are allowed")
        if len(body) > 1 and body[0] == "0":
            raise ValueError(
                f"`{text}` has a leading zero; write {int(body)}, or {_octal(body)} if octal is meant"
                if _octal(body)
                else f"`{text}` has a leading zero; write {int(body)}"
            )
        return int(text)
    if body[:2] in ("0x", "0o") and len(body) <= MAX_DIGITS and all(c in "0123456789abcdefABCDEF" for c in body[2:]) and body[2:]:
        raise ValueError(f"`{text}` is not a decimal number; write it in decimal digits")
    if body.lower().lstrip("+-") in (".nan", ".inf"):
        raise ValueError(f"`{text}` is not a finite number")
    return _float(text, body) if body[:1] in "0123456789." and any(c.isdigit() for c in digits) else text


def _float(text: str, body: str) -> str | float:
    """A decimal number with a point or an exponent, or the text itself."""
    mantissa, e, exponent = body.replace("E", "e").partition("e")
    whole, point, part = mantissa.partition(".")
    power = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    if not (_digits(whole + part) and (point or e) and (_digits(power) or not e)):
        return text
    if len(body) > 2 * MAX_DIGITS:
        raise ValueError(f"the number has {len(body)} characters; at most {2 * MAX_DIGITS} are allowed")
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"`{text}` is not a finite number")
    return value


def _octal(body: str) -> int | None:
    return int(body, 8) if all(c in "01234567" for c in body) else None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def kind_of(value: object) -> str:
    """The name of the kind of a value, for messages."""
    return KINDS.get(type(value), type(value).__name__)
