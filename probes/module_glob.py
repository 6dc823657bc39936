"""Module globs: the dotted paths that a pattern of a spec matches."""

from __future__ import annotations

from functools import lru_cache
from itertools import product, takewhile

MAX_CHARACTERS = 1024
MAX_ALTERNATIVES = 1000


class GlobError(ValueError):
    """A text is not a valid glob.

    Attributes:
        offset: index of the offending character.
    """

    def __init__(self, message: str, offset: int = 0) -> None:
        self.offset = offset
        super().__init__(message)


# A level is a tuple of alternatives, an alternative a tuple of tokens: a character, or one of the two wildcards.
ANY, RUN = 0, 1
Token = str | int
Alternative = tuple[Token, ...]
WILDCARDS: dict[str, Token] = {"*": RUN, "?": ANY}


class ModuleGlob:
    """A glob on dotted module paths.

    `*` is any run of characters within a level, `?` one character, `**` as a whole level zero or more levels (at the end
    one or more), `{a,b}` and `{8..11}` are alternatives, a backslash quotes a character, and the empty pattern is the root.

    Args:
        text: the pattern.

    Raises:
        GlobError: the text is not a pattern.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise GlobError(f"a glob has at most {MAX_CHARACTERS} characters, this one has {len(text)}")
        self.text = text
        self.levels: list[tuple[Alternative, ...] | None] = []
        for level, offset in _split(text):
            if level == "**":
                if not self.levels or self.levels[-1] is not None:
                    self.levels.append(None)
            else:
                self.levels.append(_level(level, offset))
        # A pattern without `**` matches paths of one length only, which excludes most of a large model at once.
        self._depth = len(self.levels) - 1 if None not in self.levels else -1
        self._prefix = _prefix(self.levels)

    @property
    def is_exact(self) -> bool:
        """Whether the pattern names one path."""
        return all(level is not None and len(level) == 1 and all(type(token) is str for token in level[0]) for level in self.levels)

    @property
    def exact(self) -> str:
        """The one path that an exact pattern names."""
        return ".".join("".join(str(token) for token in level[0]) for level in self.levels if level)

    def matches(self, path: str) -> bool:
        """Whether the pattern matches a whole path."""
        if not path.startswith(self._prefix):
            return False
        if self._depth >= 0 and path.count(".") != self._depth:
            return False
        names = path.split(".") if path else []
        if not self.levels or not names:
            return not self.levels and not names
        if self._depth >= 0:
            for level, name in zip(self.levels, names, strict=True):  # noqa: SIM110 - a generator doubles the time of a large model
                if level is None or not _fits_level(level, name):
                    return False
            return True
        return self._matches(names)

    def _matches(self, names: list[str]) -> bool:
        # reached[k]: whether the levels read so far match the first k names; the usual dynamic programming for globs.
        reached = [True] + [False] * len(names)
        last = len(self.levels) - 1
        for index, level in enumerate(self.levels):
            following = [False] * (len(names) + 1)
            if level is None:
                some = False
                for k in range(len(names) + 1):
                    following[k] = some if index == last else some or reached[k]
                    some = some or reached[k]
            else:
                for k, name in enumerate(names):
                    following[k + 1] = reached[k] and _fits_level(level, name)
            reached = following
            if True not in reached:
                return False
        return reached[-1]


def _prefix(levels: list[tuple[Alternative, ...] | None]) -> str:
    """The literal beginning of all paths that the levels match."""
    found = ""
    for index, level in enumerate(levels):
        if level is None or len(level) != 1:
            break
        literal = "".join(str(token) for token in takewhile(lambda token: type(token) is str, level[0]))
        found += literal
        if len(literal) < len(level[0]) or index == len(levels) - 1:
            break
        found += "."
    return found


def levels_of(text: str) -> list[str]:
    """The levels of a pattern as texts: `h.{0..3}.*` is `h`, `{0..3}` and `*`."""
    return [level for level, _ in _split(text)]


def _split(text: str) -> list[tuple[str, int]]:
    """The levels of a pattern with their offsets; a quoted dot and a dot within braces do not separate."""
    if not text:
        return []
    levels, start, quoted, depth = [], 0, False, 0
    for index, character in enumerate(text):
        if quoted:
            quoted = False
        elif character == "\\":
            quoted = True
        elif character in "{}":
            depth += 1 if character == "{" else -1
        elif character == "." and depth == 0:
            levels.append((text[start:index], start))
            start = index + 1
    if quoted:
        raise GlobError("the backslash at the end escapes nothing", len(text) - 1)
    levels.append((text[start:], start))
    for level, offset in levels:
        if not level:
            raise GlobError(f"`{text}` has an empty level (two dots in a row, or a dot at the start or end)", offset)
    return levels


def _level(text: str, offset: int) -> tuple[Alternative, ...]:
    parts: list[list[Alternative]] = []
    index = 0
    while index < len(text):
        character = text[index]
        if character == "{":
            end = text.find("}", index)
            if end < 0:
                raise GlobError("`{` is not closed", offset + index)
            parts.append([tuple(WILDCARDS.get(c, c) for c in option) for option in _options(text[index + 1 : end], offset + index)])
            index = end
        elif character == "}":
            raise GlobError("`}` has no `{`", offset + index)
        elif text.startswith("**", index):
            raise GlobError(f"`**` matches whole levels and cannot be a part of `{text}`; within a level write `*`", offset + index)
        elif character == "\\":
            index += 1
            parts.append([(text[index],)])
        else:
            parts.append([(WILDCARDS.get(character, character),)])
        index += 1
    if _count(parts) > MAX_ALTERNATIVES:
        raise GlobError(f"more than {MAX_ALTERNATIVES} alternatives in one level", offset)
    return tuple(tuple(token for part in choice for token in part) for choice in product(*parts))


def _count(parts: list[list[Alternative]]) -> int:
    count = 1
    for part in parts:
        count *= len(part)
    return count


def _options(text: str, offset: int) -> list[str]:
    low, dots, high = text.partition("..")
    if dots:
        if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit() and len(low) < 7 and len(high) < 7):
            raise GlobError(f"`{{{text}}}` is not a range of whole numbers such as `{{8..11}}`", offset)
        if (low, high) != (str(int(low)), str(int(high))):
            message = f"`{{{text}}}` has a leading zero; write `{{{int(low)}..{int(high)}}}`, or list the names with commas"
            raise GlobError(message, offset)
        if int(low) > int(high):
            raise GlobError(f"`{{{text}}}` counts down; write `{{{high}..{low}}}`", offset)
        if int(high) - int(low) >= MAX_ALTERNATIVES:
            raise GlobError(f"`{{{text}}}` has more than {MAX_ALTERNATIVES} members", offset)
        return [str(number) for number in range(int(low), int(high) + 1)]
    if any(mark in text for mark in "{.\\"):
        raise GlobError("alternatives cannot contain dots, backslashes or braces", offset)
    return text.split(",")


@lru_cache(maxsize=65536)
def _fits_level(level: tuple[Alternative, ...], name: str) -> bool:
    """Whether one of a level's alternatives matches a name."""
    return any(_fits(option, name) for option in level)


def _fits(tokens: Alternative, name: str) -> bool:
    """Whether one alternative of a level matches a name; at most len(tokens) times len(name) steps."""
    token, place, star, mark = 0, 0, -1, 0
    while place < len(name):
        if token < len(tokens) and (tokens[token] == ANY or tokens[token] == name[place]) and tokens[token] is not RUN:
            token += 1
            place += 1
        elif token < len(tokens) and tokens[token] is RUN:
            star, mark = token, place
            token += 1
        elif star >= 0:
            mark += 1
            token, place = star + 1, mark
        else:
            return False
    return all(left is RUN for left in tokens[token:])
