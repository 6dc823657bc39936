"""Readings as metrics of an experiment tracker: names that it accepts, and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from blake3 import blake3

from probes.component import Number, Reading

LONGEST = 230  # MLflow takes 250 characters
REFUSED = re.compile(r"[^A-Za-z0-9_\-. /]")
WORDS = {"+inf": "posinf", "-inf": "neginf"}
ROOT = "_root_"


class StepMetrics(NamedTuple):
    """The metrics of one step.

    Attributes:
        epoch: the epoch.
        global_step: the step, counted over all epochs of the phase.
        values: number by name.
    """

    epoch: int
    global_step: int
    values: dict[str, float]


def step_metrics(readings: Sequence[Reading], rank: int = 0, *, plain: bool = True) -> list[StepMetrics]:
    """The metrics of some readings by step, in order; a reading whose `global_step` is not known is left out.

    Args:
        readings: of one or more steps.
        rank: of the process; on other ranks than 0 each name begins with it.
        plain: whether names have only the characters that every tracker accepts.
    """
    found: dict[tuple[str, int], StepMetrics] = {}
    for reading in readings:
        clock = reading.clock
        if clock.global_step < 0:
            continue
        step = found.setdefault((clock.phase, clock.global_step), StepMetrics(clock.epoch, clock.global_step, {}))
        for label, number in reading.numbers.items():
            for suffix, value in _floats(number):
                name = "/".join([*_parts(reading, rank), *([label] if label else []), *suffix])
                step.values[accepted(name) if plain else name] = value
    return list(found.values())


def series_name(reading: Reading, rank: int = 0) -> str:
    """`probe/target/leaf`, after the phase if it is not `train`, and before the number of the call if it is not the first."""
    return "/".join(_parts(reading, rank))


def accepted(name: str) -> str:
    """A name with characters that MLflow and Weights & Biases accept; a digest keeps different names different."""
    parts = [WORDS.get(part, part) for part in name.split("/")]
    plain = REFUSED.sub("_", "/".join(parts))
    whole = all(part.strip(".") for part in plain.split("/"))
    if plain == "/".join(parts) and whole and len(plain) <= LONGEST:
        return plain
    kept = "/".join(part if part.strip(".") else "_" for part in plain.split("/"))
    return f"{kept[:LONGEST]}-{blake3(name.encode()).hexdigest(6)}"


def _parts(reading: Reading, rank: int) -> list[str]:
    key, clock = reading.key, reading.clock
    before = [*([f"rank-{rank}"] if rank else []), *([key.phase] if key.phase != "train" else [])]
    times = (("microstep", clock.microstep), ("call", clock.call), ("backward", clock.backward))
    return [*before, key.probe, key.target or ROOT, key.leaf, *(f"{name}-{count}" for name, count in times if count > 0)]


def _floats(number: Number) -> Iterator[tuple[list[str], float]]:
    """A number as floats: a complex number is two."""
    if isinstance(number, str) and number not in ("nan", "inf", "-inf"):
        whole = complex(number)
        yield from ((["real"], whole.real), (["imag"], whole.imag))
    else:
        yield [], float(number)
