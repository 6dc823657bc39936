"""What protects captures costs: the journal's lock between threads, the checksum of each record, the digest of small records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.row import Row
from benchmarks.stack import MANY, MODULES, Probed, stack
from benchmarks.turns import Seconds, by_turns, ratios
from probes.journal import record_writer

TOPIC = "Locks and checksums: hook to committed journal, divided by the same without them"
TURNS = 41
PARTS = {"checksum": "link", "digest": "_digest"}  # what each is called in `record_writer`


class Timed:
    """A function, and how long it ran; what looking at the clock takes is in it, so that the price is an upper bound."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        began = perf_counter()
        found = self.function(*args)
        self.seconds += perf_counter() - began
        return found


def locks(count: int) -> float:
    """Seconds of taking a free lock so often, as each capture does once."""
    lock = threading.RLock()
    began = perf_counter()
    for _ in range(count):
        with lock:
            pass
    return perf_counter() - began


def timed(folder: Path, x: Tensor, modules: int, steps: int) -> list[Seconds]:
    """Seconds of some steps, and of each protection in them."""
    with ExitStack() as exits:
        run = Probed(exits, folder, stack(modules), lambda model: model(x), hook="forward")

        def part(name: str) -> Callable[[], float]:
            def seconds() -> float:
                function = Timed(getattr(record_writer, PARTS[name]))
                with patch.object(record_writer, PARTS[name], function):
                    run.seconds(steps)
                return function.seconds

            return seconds

        parts = {"lock": lambda: locks(modules * steps), **{name: part(name) for name in PARTS}}
        found = by_turns({"whole": lambda: run.seconds(steps), **parts}, TURNS)
        return [{**turn, **{f"without {name}": turn["whole"] - turn[name] for name in parts}} for turn in found]
    raise AssertionError("BUG: a run ended before it was measured")


def rows(folder: Path) -> Iterator[Row]:
    small, large = torch.randn(1 << 10), torch.randn(1 << 18)
    for text, x, modules, steps in (
        ("4 captures of 4 KiB in each step", small, 4, 40),
        ("25 captures of 4 KiB in each step", small, MODULES, 40),
        ("100 captures of 4 KiB in each step", small, MANY, 40),
        ("25 captures of 1 MiB in each step", large, MODULES, 4),
    ):
        found = timed(folder, x, modules, steps)
        for name in ("lock", *PARTS):
            yield Row(TOPIC, f"{text}: the {name}", ratios(found, "whole", f"without {name}"), "x")
