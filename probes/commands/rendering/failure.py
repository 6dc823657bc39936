"""Turn an error into a message on stderr and an exit code."""

from __future__ import annotations

import platform
import traceback
from contextlib import suppress

import click

from probes.errors import ProbesError, Problem, ProblemsError, listed
from probes.printable import several_lines

DEBUG = "probes.debug"
ENVIRONMENT, BUG, INTERRUPTED, BROKEN_PIPE = 3, 4, 130, 141
REPORTED = ("torch-probes", "torch", "numpy", "h5py", "pydantic", "click")


def answer(error: Exception, *, debug: bool = False) -> int:
    """Print an error on stderr.

    Args:
        error: the exception.
        debug: also print the traceback.

    Returns:
        The exit code.
    """
    if debug:
        _say("".join(traceback.format_exception(error)))
    text, code = _message(error)
    _say(text)
    return code


def _say(text: str) -> None:
    """Print on stderr; a script under `probes run` may have closed it, and its disk may be full."""
    with suppress(ValueError, OSError):
        click.echo(text, err=True)


def _message(error: Exception) -> tuple[str, int]:
    if isinstance(error, ProblemsError):
        return problems_text(error.problems), error.exit_code
    if isinstance(error, ProbesError):
        return _painted(str(error)), error.exit_code
    if isinstance(error, click.ClickException):
        return _painted(error.format_message()), ENVIRONMENT
    if isinstance(error, OSError):
        about = f'"{error.filename}": {error.strerror}' if error.filename is not None else str(error)
        return _painted(about), ENVIRONMENT
    if isinstance(error, MemoryError):
        return _painted(f"not enough memory: {error}".rstrip(": ")), ENVIRONMENT
    return _bug(error), BUG


def problems_text(problems: tuple[Problem, ...]) -> str:
    """Return every problem with its caret line, then the count and a hint."""
    count = f"{len(problems)} {'error' if len(problems) == 1 else 'errors'}"
    more = f"; `probes explain {problems[0].code}` says more" if problems else ""
    return "\n".join([*listed(problems, problem_text), "", count + more])


def problem_text(problem: Problem) -> str:
    """Return one problem with colors; the terminal or `--color` may strip them."""
    head, *lines = several_lines(str(problem)).split("\n")
    word = f"error[{problem.code}]:"
    painted = head.replace(word, click.style(word, fg="red", bold=True), 1)
    if lines:
        bar, sign, caret = lines[-1].partition(" | ")
        lines[-1] = bar + sign + click.style(caret, fg="yellow", bold=True)
    return "\n".join([painted, *lines])


def _painted(message: str) -> str:
    word = message.partition(": ")[0] if message.startswith("error[") else "error"
    rest = message.removeprefix(word).removeprefix(":").lstrip()
    return f"{click.style(f'{several_lines(word)}:', fg='red', bold=True)} {several_lines(rest)}"


def _bug(error: Exception) -> str:
    lines = [
        _painted(f"error[bug]: {type(error).__name__}: {error}"),
        f"  {', '.join(filter(None, map(_version, REPORTED)))}",
        f"  Python {platform.python_version()} on {platform.platform()}",
        "This is a bug in probes. Report it with these lines; `probes --debug ...` or PROBES_DEBUG=1 shows the traceback.",
    ]
    return "\n".join(lines)


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # a fifth of the start-up time of every verb

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
