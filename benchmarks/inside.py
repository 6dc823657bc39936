"""What comparisons, conditions on other numbers and accumulations over samples cost, next to the norm of the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.around import CPU, TimedByCpu
from benchmarks.row import Row
from benchmarks.stack import MODULES, stack
from benchmarks.turns import by_turns, ratios

STEPS = 20
TURNS = 15
OF_TWO = {"series": "p", "target": "{0,1}"}
PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "norm": ("", {"transforms": [{"kind": "norm"}]}),
    "previous": (
        "`cosine` with the step before",
        {"against": {"step": "previous"}, "transforms": [{"kind": "cosine"}]},
    ),
    "series": ("`cosine` with two other series", {"against": OF_TWO, "transforms": [{"kind": "cosine"}]}),
    "cka": ("`cka` with two other series, 8 samples", {"against": OF_TWO, "transforms": [{"kind": "cka"}]}),
    "where": (
        "`norm` with `where` on a number of another series",
        {"transforms": [{"kind": "norm"}], "where": {"series": "p", "above": 0}},
    ),
    "topk": ("`accumulate` with `what: topk`, 4 of 8 samples", {"transforms": [{"kind": "accumulate", "what": "topk", "size": 4}]}),
    "moments": ("`accumulate` with `what: moments`", {"transforms": [{"kind": "accumulate"}]}),
}


def rows(folder: Path) -> Iterator[Row]:
    """The time of steps with a probe, divided by that of the same steps with `norm`."""
    x = torch.randn(8, 128)
    with ExitStack() as exits, torch.no_grad():

        def probed(**probe: Any) -> Callable[[], float]:
            run = TimedByCpu(exits, folder, stack(), lambda module: module(x), hook="forward", **probe)
            return lambda: run.seconds(STEPS)

        found = by_turns({name: probed(**probe) for name, (_, probe) in PROBES.items()}, TURNS)
    topic = f"Inside a step: outputs of 4 KiB of {MODULES} modules, divided by the same with `norm`, {CPU}"
    for name, (text, _) in PROBES.items():
        if text:
            yield Row(topic, text, ratios(found, name, "norm"), "x")
