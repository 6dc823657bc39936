"""Loops around `probes.attach`, as small trees: what a generated program does.

Every number is known when the program is made, so that the oracle can go through it without running it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Choice = TypeVar("Choice")

MODES = ("train", "no_grad", "eval", "eval_grad")
PARTS = ("whole", "fc", "head")
WAYS = ("call", "thread", "functional", "bound")


@dataclass(frozen=True)
class Call:
    """The model, or a part of it, is called.

    Attributes:
        mode: `train`, `no_grad` (in train mode), `eval` (under no_grad) or `eval_grad`.
        part: the whole model or one of its layers.
        way: how it is called.
        fails: whether the forward raises behind its first layer, which the program catches.
    """

    mode: str = "train"
    part: str = "whole"
    way: str = "call"
    fails: bool = False


@dataclass(frozen=True)
class Learn:
    """Backward of all outputs since the last one; with `step` the optimizer steps, with `twice` backward runs twice."""

    step: bool = True
    twice: bool = False


@dataclass(frozen=True)
class Aside:
    """Something that must change nothing: another model, a deep copy, `vmap`, `jit.trace`, or a foreign optimizer."""

    kind: str


@dataclass(frozen=True)
class Named:
    """`with run.phase(name)` around statements; with `raises` the body raises at its end, which is caught outside."""

    name: str
    body: tuple[Statement, ...]
    raises: bool = False


@dataclass(frozen=True)
class Items:
    """`for x in run.steps(data, accumulate=...)`.

    Attributes:
        count: items.
        accumulate: items of a step.
        body: what is done with each.
        leave: `break` or `raise`, caught outside, at the end of the body of item `at`.
        at: that item; negative for none.
        sized: whether the data have a length.
    """

    count: int
    accumulate: int
    body: tuple[Statement, ...]
    leave: str = ""
    at: int = -1
    sized: bool = True


@dataclass(frozen=True)
class OneStep:
    """`with run.step()`; with `raises` its body raises at its end, which is caught outside."""

    body: tuple[Statement, ...]
    raises: bool = False


Statement = Call | Learn | Aside | Named | Items | OneStep


@dataclass(frozen=True)
class Program:
    """A program: how it opens its epochs, and what it does in each.

    Attributes:
        opening: `epochs` (the iterator), `epoch` (the context manager) or empty: no epoch is opened.
        bodies: the statements of each epoch.
        leave: `break` out of the iterator, or `raise` out of the body of the last epoch, caught outside; only with an opening.
    """

    opening: str
    bodies: tuple[tuple[Statement, ...], ...]
    leave: str = ""


class Draw(Protocol):
    """Where choices come from: hypothesis, or a seed. The simplest choice stands first."""

    def choice(self, options: Sequence[Choice]) -> Choice:
        """One of some."""

    def number(self, least: int, most: int) -> int:
        """A number, both ends included."""


def program(draw: Draw) -> Program:
    """Any program."""
    opening = draw.choice(("epoch", "epochs", ""))
    bodies = tuple(statements(draw, draw.number(1, 3), depth=0) for _ in range(draw.number(1, 3) if opening else 1))
    return Program(
        opening, bodies, draw.choice(("", "break", "raise")) if opening == "epochs" else draw.choice(("", "raise")) if opening else ""
    )


def statements(draw: Draw, count: int, depth: int) -> tuple[Statement, ...]:
    """Some statements outside of any step."""
    return tuple(statement(draw, depth) for _ in range(count))


def statement(draw: Draw, depth: int) -> Statement:
    """One statement outside of any step."""
    kinds = ("items", "call", "learn", "step", "aside", *(("named",) if depth < 2 else ()))
    kind = draw.choice(kinds)
    if kind == "items":
        return items(draw)
    if kind == "step":
        return OneStep(body(draw), raises=draw.choice((False, True)))
    if kind == "named":
        inner = statements(draw, draw.number(1, 3), depth + 1)
        return Named(draw.choice(("eval", "val")), inner, raises=draw.choice((False, True)))
    return action(draw, kind)


def items(draw: Draw) -> Items:
    """A loop over items."""
    count = draw.number(1, 4)
    sized = draw.choice((True, False))
    leave = draw.choice(("", "break", "raise"))
    last = count - 1 if sized or leave == "raise" else count - 2  # nothing tells that an item of a generator was the last
    at = draw.number(0, last) if leave and last >= 0 else -1
    return Items(count, draw.choice((1, 2)), body(draw), leave if at >= 0 else "", at, sized)


def body(draw: Draw) -> tuple[Statement, ...]:
    """What is done with an item: a first call, and some more."""
    more = [_within(draw) for _ in range(draw.number(0, 3))]
    return (action(draw, "call"), *more)


def _within(draw: Draw) -> Statement:
    kind = draw.choice(("learn", "call", "aside", "named"))
    if kind == "named":
        return Named(draw.choice(("eval", "val")), tuple(action(draw, "call") for _ in range(draw.number(1, 2))))
    return action(draw, kind)


def action(draw: Draw, kind: str) -> Statement:
    """A call, an update, or something that must change nothing."""
    if kind == "learn":
        return Learn(step=draw.choice((True, False)), twice=draw.choice((False, True)))
    if kind == "aside":
        return Aside(draw.choice(("other", "copy", "vmap", "foreign_step", "trace")))
    mode, part = draw.choice(MODES), draw.choice(PARTS)
    way = draw.choice(WAYS) if part == "whole" else "call"
    return Call(mode, part, way, fails=part == "whole" and draw.choice((False, False, False, True)))
