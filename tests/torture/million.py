"""A million captures in one epoch, ten thousand series, a million steps: what sealing, opening and memory take."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

from tests.torture.nursery import ROOT
from tests.torture.report import Effort, Row

FORMS = {"{:,} captures in one epoch": (100, 10_000), "{:,} captures of 10,000 series": (10_000, 20), "{:,} steps": (1, 1_000_000)}
"""Layers, and steps of the full number of trials."""
FLAT = 8 << 10  # KiB by which the training may grow from its first tenth on
PER_SERIES = 40  # KiB of memory of the sealer for each series: the objects of the HDF5 library
SEALER_PER_CAPTURE = 512  # bytes of memory of the sealer for each capture: its index


def rows(effort: Effort) -> Iterator[Row]:
    """A row for each form."""
    for number, (name, (layers, most)) in enumerate(FORMS.items()):
        steps = effort.count(most, 20)
        run = effort.folder / f"million-{number}"
        with effort.row(name.format(layers * steps)) as row:
            command = [sys.executable, "-m", "tests.torture.million", str(run), str(layers), str(steps)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            row.trials = 1
            if done.returncode:
                row.count.problems.append(done.stderr[-1000:])
            else:
                _check(row, layers, layers * steps, json.loads(done.stdout.splitlines()[-1]))
        shutil.rmtree(run, ignore_errors=True)
        yield row


def _check(row: Row, layers: int, captures: int, said: dict[str, Any]) -> None:
    grown, baseline = said["last"] - said["first"], (160 << 10) + layers * PER_SERIES
    row.count.acknowledged = captures
    row.count.lost, row.count.wrong = captures - said["read"], said["wrong"]
    row.count.problems += [f"the training grew by {grown} KiB"] if grown > FLAT else []
    row.count.problems += [f"{said['datasets']} datasets for {layers} series"] if said["datasets"] != layers else []
    if said["sealer"] > baseline + captures * SEALER_PER_CAPTURE / 1024:
        row.count.problems.append(f"the sealer took {said['sealer']} KiB")
    row.note = (
        f"{layers:,} datasets; sealed in {said['seal']:.1f} s, opened in {1000 * said['open']:.0f} ms, listed in {said['listed']:.1f} s; "
        f"the training grew by {max(grown, 0) / 1024:.1f} MiB, the sealer took {said['sealer'] / 1024:.0f} MiB"
    )


def main(run: Path, layers: int, steps: int) -> None:
    """Train, seal and read back; print what was measured as JSON."""
    from time import perf_counter

    import torch
    from torch import nn

    import probes

    model = nn.Sequential(*(nn.Identity() for _ in range(layers)))
    memory: list[int] = []
    limits = {"matches_per_probe": layers}
    spec = {"version": 1, "limits": limits, "probes": {"acts": {"hook": "forward", "modules": ["*"]}}}
    with probes.attach(model, spec, out=run) as attached:
        for index, x in enumerate(attached.steps(torch.full((4,), float(step)) for step in range(steps))):
            model(x)
            if index % (steps // 10) == 0:
                memory.append(_resident())
        attached.engine.hear(attached.engine.clock.epoch_ends)
        began = perf_counter()
        child = attached.recording.sealer._child
        peak = _watched(child.pid) if child is not None else 0
    sealed = perf_counter() - began
    began = perf_counter()
    series = probes.open(run).series
    one = series[0].numpy()
    opened = perf_counter() - began
    began = perf_counter()
    listed = len(probes.open(run).outlines)
    took = perf_counter() - began
    assert listed == layers, listed
    wrong = sum(int((found.numpy()[:, 0] != range(steps)).sum()) for found in series)
    said = {"first": memory[1], "last": memory[-1], "seal": sealed, "open": opened, "datasets": len(series), "wrong": wrong, "listed": took}
    print(json.dumps({**said, "read": sum(map(len, series)), "sealer": peak, "shape": one.shape}))


def _watched(sealer: int) -> int:
    """The most memory in KiB that the sealer takes while it seals; it has nothing else to do, so it ends by sleeping."""
    peak, idle = 0, 0
    while idle < 20:
        try:
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{sealer}/status").read_text().splitlines())
        except FileNotFoundError:
            return peak
        peak = max(peak, int(lines.get("VmHWM", "0 kB").split()[0]))
        idle = idle + 1 if lines["State"].split()[0] == "S" else 0
        sleep(0.02)
    return peak


def _resident() -> int:
    """KiB of memory that the process holds now."""
    import resource

    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
