"""What happens before the first step: attaching a large spec to a large model, and checking one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from torch import nn

import probes
from benchmarks.row import Row
from benchmarks.turns import by_turns, interval, ratios, seconds
from probes.errors import RunError

TOPIC = "Start"
ATTACH = "All 4,900 modules are bound; the record of the model and of its environment is a third of it."
CHECK = "The bar is the time that Python takes to import what `check` cannot do without."
SPEC = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n"


def large() -> nn.Module:
    """5,000 modules in 100 blocks."""
    return nn.ModuleDict({f"block{index}": nn.Sequential(*(nn.Identity() for _ in range(49))) for index in range(100)})


def rows(folder: Path) -> Iterator[Row]:
    model = large()
    patterns = [f"block{index}.*" for index in range(100)]
    spec = {
        "version": 1,
        "limits": {"matches_per_probe": 5000},
        "probes": {"p": {"hook": "forward", "modules": patterns, "expect": {"fires": "some"}}},
    }

    def attach(turn: int) -> float:
        with ExitStack() as exits:
            exits.enter_context(suppress(RunError))
            runs: list[probes.Run] = []
            return seconds(lambda: runs.append(exits.enter_context(probes.attach(model, spec, out=folder / f"run-{turn}"))))
        raise AssertionError("BUG: attaching was not measured")

    yield Row(
        TOPIC,
        "`attach` to a model of 5,000 modules with a spec of 100 patterns",
        interval([attach(turn) for turn in range(7)]),
        "s",
        "<= 1",
        0.5,
        ATTACH,
    )
    path = folder / "probe.yaml"
    path.write_text(SPEC, encoding="utf-8")
    check = [sys.executable, "-m", "probes", "check", str(path)]
    imports = [sys.executable, "-c", "import yaml, pydantic, click"]
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as an installed package is
    compiled["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")

    def started(command: list[str]) -> float:
        return seconds(lambda: subprocess.run(command, check=True, capture_output=True, env=compiled))

    found = by_turns({"check": lambda: started(check), "imports": lambda: started(imports)}, 15)
    yield Row(
        TOPIC,
        "`probes check`, divided by `python -c 'import yaml, pydantic, click'`",
        ratios(found, "check", "imports"),
        "x",
        "<= 3",
        2,
        CHECK,
    )
