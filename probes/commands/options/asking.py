"""The questions of `probes init` on a terminal; each has a flag that answers it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from probes.commands.presets import about, spec_of
from probes.commands.rendering.starting_spec import remark
from probes.spec.spec_files import preset_names

if TYPE_CHECKING:
    from probes.plan.suggestion import SuggestedTarget, Suggestion

OWN = "What do chosen modules return, and do gradients reach them?"


@dataclass(frozen=True)
class StartingPoint:
    """The starting point of a first spec.

    Attributes:
        preset: name of a preset; None to start without one.
        model: PKG:CALLABLE.
        program: a script and its arguments; one pass of its model is watched.
    """

    preset: str | None = None
    model: str | None = None
    program: tuple[str, ...] = ()


def can_ask() -> bool:
    """Whether stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def source() -> StartingPoint:
    """Ask for the question that the spec answers, and for the model."""
    _say("Press Enter for the default in brackets. You can change every answer in the file later.\n")
    names = sorted(name.removeprefix("preset:") for name in preset_names())
    _say(_numbered([OWN, *(about(spec_of(f"preset:{name}")) for name in names)], ["parts", *names]))
    index = _number("What do you want to know?", 1 + len(names), 1)
    _say("\nA model makes the spec fit. Name a callable that builds it (FILE.py:CALLABLE or PKG:CALLABLE) or a script that calls it.")
    said = _text("Model, or script with arguments (empty for none)", "")
    preset = None if index == 1 else names[index - 2]
    words = tuple(shlex.split(said))
    if len(words) == 1 and ":" in said:
        return StartingPoint(preset, model=said)
    return StartingPoint(preset, program=words)


def targets(found: Suggestion) -> tuple[str, ...]:
    """Ask which modules to capture; return an empty tuple for the suggested ones."""
    known: list[SuggestedTarget] = [*found.chosen, *found.others]
    _say("\n" + _numbered([f"{target.pattern}  {remark(target)}" for target in known]))
    default = " ".join(str(number) for number in range(1, len(found.chosen) + 1))
    words = _text("Which modules? Numbers, or paths and globs", default).split()
    if words == default.split():
        return ()
    return tuple(known[int(word) - 1].pattern if word.isdigit() and 0 < int(word) <= len(known) else word for word in words)


def keep() -> str:
    """Ask whether to store statistics or values."""
    _say("\n" + _numbered(["ten statistics of each value: count, mean, std, min, max, zeros, NaN ...", "the values"]))
    return "stats" if _number("What to store?", 2, 1) == 1 else "values"


def every() -> int:
    """Ask how often to capture."""
    return _number("\nCapture every how many steps?", 1_000_000, 10)


def _numbered(texts: Sequence[str], names: Sequence[str] = ()) -> str:
    width = max(map(len, names), default=0)
    heads = [f"{name.ljust(width)}  " for name in names] or [""] * len(texts)
    return "\n".join(f"  {number:>2}  {head}{text}" for number, (head, text) in enumerate(zip(heads, texts, strict=True), 1))


def _number(text: str, most: int, default: int) -> int:
    answer: int = click.prompt(text, type=click.IntRange(1, most), default=default, err=True)
    return answer


def _text(text: str, default: str) -> str:
    answer: str = click.prompt(text, default=default, err=True, show_default=bool(default))
    return answer.strip()


def _say(text: str) -> None:
    click.echo(text, err=True)
