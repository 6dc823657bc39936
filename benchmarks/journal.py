"""What one capture costs: small ones against a hook that does nothing, large ones against `os.write` of the same bytes.

Usage: python benchmarks/journal.py [DIRECTORY]     (where the files go; the system's temporary directory by default)

Variants run by turns, every ratio is taken within a turn, medians are printed.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch

from probes.clock import SeriesKey
from probes.store.journal import Journal

CALLS = 25
STEPS = 100
TURNS = 15
LARGE_TOTAL = 64 << 20
HEAD = {"run_id": "benchmark", "epoch": 0}


def start(path: Path, nbytes: int, spare: Path | None = None, durability: str = "process") -> tuple[Journal, int]:
    journal = Journal.create(path, HEAD, spare=spare, durability=durability)
    return journal, journal.descriptor(SeriesKey("p", "layer", "output", "train"), "uint8", (nbytes,), None, {}, {})


def hook_seconds(calls: int) -> float:
    """Seconds that a forward hook adds when it does nothing."""
    bare, hooked, x = torch.nn.Identity(), torch.nn.Identity(), torch.zeros(1)
    hooked.register_forward_hook(lambda module, args, output: None)
    seconds = []
    for module in (bare, hooked):
        began = perf_counter()
        for _ in range(calls):
            module(x)
        seconds.append(perf_counter() - began)
    return seconds[1] - seconds[0]


def copy_seconds(calls: int, nbytes: int, address: int) -> float:
    target = bytearray(nbytes)
    to = ctypes.addressof(ctypes.c_char.from_buffer(target))
    began = perf_counter()
    for _ in range(calls):
        ctypes.memmove(to, address, nbytes)
    return perf_counter() - began


def gather_seconds(folder: Path, nbytes: int, address: int, durability: str) -> float:
    """Seconds of `STEPS` steps of `CALLS` captures, commits included."""
    journal, number = start(folder / "small.journal", nbytes, durability=durability)
    began = perf_counter()
    for step in range(STEPS):
        for call in range(CALLS):
            journal.add(number, step, 0, call, 0, address, nbytes)
        journal.commit("train", step, step)
    seconds = perf_counter() - began
    journal.close()
    journal.path.unlink()
    return seconds


def plain_seconds(folder: Path, nbytes: int, address: int) -> float:
    payload = (ctypes.c_char * nbytes).from_address(address)
    path = folder / "plain"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    began = perf_counter()
    for _ in range(LARGE_TOTAL // nbytes):
        os.write(descriptor, payload)
    seconds = perf_counter() - began
    os.close(descriptor)
    path.unlink()
    return seconds


def extent_seconds(folder: Path, nbytes: int, address: int, spare: Path | None = None) -> float:
    path = folder / "large.journal"
    journal, number = start(path, nbytes, spare)
    began = perf_counter()
    for call in range(LARGE_TOTAL // nbytes):
        journal.add(number, 0, 0, call, 0, address, nbytes)
    journal.commit("train", 0, 0)
    seconds = perf_counter() - began
    journal.close()
    path.replace(folder / "spare.journal")
    return seconds


def by_turns(variants: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(TURNS):
        for name, variant in variants.items():
            seconds[name].append(variant())
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, base: str) -> str:
    ratios = sorted(a / b for a, b in zip(seconds[name], seconds[base], strict=True))
    return f"{statistics.median(ratios):.2f} (quartiles {ratios[len(ratios) // 4]:.2f} to {ratios[3 * len(ratios) // 4]:.2f})"


def small(folder: Path, nbytes: int, address: int) -> None:
    calls = CALLS * STEPS
    variants: dict[str, Callable[[], float]] = {
        "no-op hook": lambda: hook_seconds(calls),
        "memmove": lambda: copy_seconds(calls, nbytes, address),
        "process": lambda: gather_seconds(folder, nbytes, address, "process"),
        "power": lambda: gather_seconds(folder, nbytes, address, "power"),
    }
    seconds = by_turns(variants)
    for name in variants:
        micros = statistics.median(seconds[name]) / calls * 1e6
        print(f"{nbytes:>9} B  {name:<12} {micros:8.2f} us each, {ratio(seconds, name, 'no-op hook')} of a no-op hook")


def large(folder: Path, nbytes: int, address: int) -> None:
    spare = folder / "spare.journal"
    seconds = by_turns(
        {
            "os.write": lambda: plain_seconds(folder, nbytes, address),
            "fresh": lambda: extent_seconds(folder, nbytes, address),
            "recycled": lambda: extent_seconds(folder, nbytes, address, spare),
            "os.write again": lambda: plain_seconds(folder, nbytes, address),
        }
    )
    for name in seconds:
        rate = LARGE_TOTAL / statistics.median(seconds[name]) / 1e9
        print(f"{nbytes:>9} B  {name:<14} {rate:6.2f} GB/s, {ratio(seconds, name, 'os.write')} of os.write")


def main() -> None:
    torch.set_num_threads(1)
    source = torch.randn(2 << 20)
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        for nbytes in (4 << 10, 16 << 10):
            small(Path(name), nbytes, source.data_ptr())
        for nbytes in (64 << 10, 256 << 10, 1 << 20, 8 << 20):
            large(Path(name), nbytes, source.data_ptr())


if __name__ == "__main__":
    main()
