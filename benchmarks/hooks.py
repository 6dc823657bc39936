"""What a small capture adds to a module's call, and what a probe adds that is not due."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.rivals import H5pyAppend
from benchmarks.row import Row
from benchmarks.stack import MANY, MODULES, Hook, Probed, call, hooked, stack
from benchmarks.turns import Seconds, by_turns, ratios
from probes.journal.record import ENTRY

STEPS = 40
TURNS = 101
FEW_TURNS = 31
NEVER = {"when": {"steps": {"at": [1 << 30]}}}
ELSEWHERE = {"when": {"phases": ["eval"]}}


class Raw:
    """The least a hook can do whose bytes are to be in a file at the step's end: one copy, one entry, one write a step."""

    def __init__(self, folder: Path, x: Tensor, modules: int) -> None:
        self.modules = modules
        self.size = x.nbytes
        self.buffer = bytearray(modules * x.nbytes)
        self.table = bytearray(modules * ENTRY.size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        self.copy = ctypes.PyDLL(None).memcpy
        self.copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self.file = os.open(folder / "raw", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.end = 0

    def close(self) -> None:
        os.close(self.file)

    def __call__(self, index: int) -> Hook:
        copy, table, pack, place, entry, size = (
            self.copy,
            self.table,
            ENTRY.pack_into,
            self.base + index * self.size,
            index * ENTRY.size,
            self.size,
        )

        def hook(_module: torch.nn.Module, _args: object, output: Tensor) -> None:
            copy(place, output.data_ptr(), size)
            pack(table, entry, index, 0, 0, 0, 0, 0, entry)
            if index == self.modules - 1:
                self.end += os.pwritev(self.file, (table, self.buffer), self.end)

        return hook


def timed(folder: Path, x: Tensor, modules: int, turns: int, others: dict[str, Any]) -> list[Seconds]:
    """Seconds of hooks that do nothing, of the least that captures, of captures of ours, and of an append, and of other probes."""

    def append() -> float:
        with closing(H5pyAppend(folder, x, modules)) as hook:
            return hooked(hook, x, STEPS, modules)

    def raw() -> float:
        with closing(Raw(folder, x, modules)) as hook:
            return hooked(hook, x, STEPS, modules)

    with ExitStack() as exits:

        def probed(**probe: Any) -> Callable[[], float]:
            run = Probed(exits, folder, stack(modules), lambda model: model(x), hook="forward", **probe)
            return lambda: run.seconds(STEPS)

        return by_turns(
            {
                "bare": lambda: call(stack(modules), x, range(STEPS)),
                "no-op": lambda: hooked(lambda _: lambda *_: None, x, STEPS, modules),
                "raw": raw,
                "due": probed(),
                **{name: probed(**probe) for name, probe in others.items()},
                "append": append,
            },
            turns,
        )
    raise AssertionError("BUG: a run ended before it was measured")


def rows(folder: Path) -> Iterator[Row]:
    x = torch.randn(1 << 10)
    found = {
        MANY: timed(folder, x, MANY, FEW_TURNS, {}),
        MODULES: timed(folder, x, MODULES, TURNS, {"not due": NEVER, "elsewhere": ELSEWHERE}),
    }
    due = {modules: ratios(rows, "due", "no-op", "bare") for modules, rows in found.items()}
    step = (due[MODULES].median - due[MANY].median) / (1 / MODULES - 1 / MANY)
    topic = "Small capture: 4 KiB, forward hook to committed journal"
    for modules, rows in found.items():
        floor = ratios(rows, "raw", "no-op", "bare")
        note = (
            f"The measured minimum is {floor.median:.1f} ({floor.low:.1f} to {floor.high:.1f}): hooks that only copy their 4 KiB, "
            "pack one entry and write once per step. The rest is Python code: it checks that the value is a plain tensor with the dtype, "
            "shape and device of the last one, determines call and step, and counts. The clock and the commit cost as much as "
            f"{step:.0f} no-op hooks per step; with few modules, their share is large."
        )
        append = ratios(rows, "append", "raw", "bare")
        rival = f"The same hooks without checks and counters are {append.median:.0f} times cheaper than the append."
        where = f"{modules} modules per step"
        yield Row(topic, f"time added to a call, {where}, divided by no-op forward hooks", due[modules], "x", "<= 4", 3.8, note)
        yield Row(
            topic,
            f"h5py append in the hook, {where}, divided by a capture with `probes`",
            ratios(rows, "append", "due", "bare"),
            "x",
            ">= 20",
            21,
            rival,
        )
    rest = "One is the hook itself, which stays on the module. The rest is the clock, once per step, and the check that each call passes."
    for name, text in (
        ("not due", "a probe that is not due in this step, divided by no-op hooks"),
        ("elsewhere", "a probe of another phase, divided by no-op hooks"),
    ):
        yield Row(topic, text, ratios(found[MODULES], name, "no-op", "bare"), "x", "<= 1.2", 0.9, rest)
