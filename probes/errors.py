"""Problems as values, with their place and hint, and the errors that carry them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

LONGEST_LINE = 240
MOST_LISTED = 100


@dataclass(frozen=True)
class Problem:
    """One problem, its place, and what to do about it.

    Attributes:
        code: kebab-case name of the kind of problem, the same in every release.
        message: one sentence: what was found, and what is allowed; names and values in backticks, paths in double quotes.
        hint: the nearest name, or the command or key that mends it; may be empty.
        file: the file as the user named it; empty if there is none.
        line: 1-based line, 0 if unknown.
        column: 1-based column, 0 if unknown.
        width: number of characters the caret line underlines.
        source: the text of the line, without its end.
        path: the place in dotted YAML keys, such as `probes.acts.when`.
    """

    code: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    width: int = 1
    source: str = ""
    path: str = ""

    @property
    def place(self) -> str:
        """`file:line:column`, as far as it is known."""
        numbers = [str(n) for n in (self.line, self.column) if n]
        return ":".join([self.file, *numbers]) if self.file else self.path

    def at(self, **where: object) -> Problem:
        """The same problem at another place."""
        return replace(self, **where)  # type: ignore[arg-type]  # dataclasses.replace takes the fields by name

    def as_dict(self) -> dict[str, object]:
        """Plain data for `--json`; a line that is too long to show is left out."""
        return asdict(self) if len(self.source) <= LONGEST_LINE else {**asdict(self), "source": ""}

    def _shown(self) -> tuple[str, int]:
        """The line, and the indentation of the caret; of a long line only the part around the caret."""
        start = max(self.column - 1 - LONGEST_LINE // 2, 0) if len(self.source) > LONGEST_LINE else 0
        return self.source[start : start + LONGEST_LINE], max(self.column - 1 - start, 0)

    def __str__(self) -> str:
        head = f"{self.place}: " if self.place else ""
        lines = [f"{head}error[{self.code}]: {self.message}"]
        if self.source and self.line:
            number, (source, indent) = f"{self.line:>5}", self._shown()
            carets = "^" * min(max(self.width, 1), len(source) - indent or 1)
            lines.append(f"{number} | {source}")
            lines.append(f"{' ' * len(number)} | {' ' * indent}{carets} {self.hint}".rstrip())
        elif self.hint:
            lines[0] += f"; {self.hint}"
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint naming the known name closest to `name`, or an empty text."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`?" if close else ""


def closest(name: str, known: Iterable[str], count: int = 5) -> str:
    """The known names that are closest to `name`, the closest first."""
    return ", ".join(f"`{one}`" for one in difflib.get_close_matches(name, list(known), count, cutoff=0.0))


def listed(problems: Sequence[Problem], show: Callable[[Problem], str] = str) -> list[str]:
    """Each problem as text; of very many only the first ones, and the number of others."""
    more = [f"... and {len(problems) - MOST_LISTED} more"] if len(problems) > MOST_LISTED else []
    return [*map(show, problems[:MOST_LISTED]), *more]


class ProbesError(Exception):
    """Any error that this package raises on purpose; `exit_code` is the exit code of the command line."""

    exit_code = 4


class ProblemsError(ProbesError):
    """An error that carries every problem found, not just the first.

    Attributes:
        problems: the problems, in the order of their places.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(listed(self.problems)))


class SpecError(ProblemsError, ValueError):
    """A spec is not valid."""


class PlanError(ProblemsError, LookupError):
    """A spec and a model do not fit together."""


class UsageError(ProbesError, ValueError):
    """A call or a command line is not valid."""

    exit_code = 2


class RunError(ProbesError, RuntimeError):
    """A run ended without the captures that its spec requires."""

    exit_code = 1


class Stopped(RunError):
    """A trigger or a rule ended the training; the message says why, and all captures are sealed.

    Attributes:
        by: what ended it: `a trigger` or `a rule`.
    """

    def __init__(self, message: str, by: str = "a trigger") -> None:
        self.by = by
        super().__init__(message)


class EditError(ProbesError, RuntimeError):
    """An edit cannot be applied to a value; training stops."""

    exit_code = 1


class StorageError(ProbesError, OSError):
    """The disk, the directory or a file of the run cannot be used."""

    exit_code = 3


class MissingExtra(ProbesError, ImportError):
    """A feature needs a package that an extra brings."""

    exit_code = 3


class FileRefused(ProbesError, ValueError):
    """A file is not a capture file, is damaged, or has content that a capture file never has.

    Attributes:
        code: kebab-case name of the kind of problem.
        message: what was found, without the code.
    """

    exit_code = 1

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(f"error[{code}]: {message}")


class SeriesNotFound(ProbesError, LookupError):
    """No series has the given probe, target and leaf."""

    exit_code = 2


class AmbiguousSeries(SeriesNotFound):
    """More than one series fits; the message lists them."""


class RaggedSeries(ProbesError, ValueError):
    """The captures of a series differ in shape, so they are not one array."""

    exit_code = 2
