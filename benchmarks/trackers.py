"""What each sink for small captures adds to a step of a training, by wall time, and what its run waits for at the end.

Ten layers with `stats` give 100 numbers in a step of about 28 ms on one core. Blocks of steps with the sink and blocks with capture
files only alternate in one process; the process that sends has another core. `python -m benchmarks trackers` measures the kinds
whose packages are installed; MLflow with a server if the whole package is.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import torch
from torch import nn

from benchmarks.row import Row
from benchmarks.stack import Probed
from benchmarks.turns import Interval, by_turns, interval, ratios

LAYERS, WIDTH, BATCH = 10, 256, 1024
STEPS = 40
TURNS = 11
BAR = "<= 1.02"
TOPIC = f"Trackers: a training of {LAYERS} layers with `stats` of each, 100 numbers in a step, divided by the same with capture files alone"
KINDS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "`jsonl`": ("json", {"kind": "jsonl", "path": "log.jsonl"}),
    "`tensorboard`": ("tensorboard", {"kind": "tensorboard"}),
    "`trackio`": ("trackio", {"kind": "trackio"}),
    "`aim`": ("aim", {"kind": "aim"}),
    "`wandb`, offline": ("wandb", {"kind": "wandb", "mode": "offline"}),
    "`mlflow`, SQLite": ("mlflow", {"kind": "mlflow", "uri": "sqlite:///mlflow.db"}),
    "`mlflow`, a server on the same machine": ("mlflow.server", {"kind": "mlflow"}),
}


def rows(folder: Path) -> Iterator[Row]:
    """A row for each kind that is installed: the ratio of a step, and the seconds at the end."""
    for name, (package, sink) in KINDS.items():
        if _is_installed(package):
            place = folder / package.replace(".", "-")
            place.mkdir(exist_ok=True)
            yield from _rows(name, dict(sink), place)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _rows(name: str, sink: dict[str, Any], folder: Path) -> Iterator[Row]:
    before = Path.cwd()
    os.chdir(folder)  # some trackers write into the working directory
    try:
        with ExitStack() as exits:
            if sink == {"kind": "mlflow"}:
                sink["uri"] = exits.enter_context(_mlflow_server(folder))
            step, end = _measured(sink, folder)
    finally:
        os.chdir(before)
    yield Row(TOPIC, name, step, "x", BAR, 1.0)
    yield Row(TOPIC, f"{name}: end of the run, less that with capture files alone", end, "s")


def _measured(sink: Mapping[str, Any], folder: Path) -> tuple[Interval, Interval]:
    """The ratio of a step, and the seconds that the end of the run takes longer."""
    captures, alone = ExitStack(), ExitStack()
    with captures, alone:
        above = _training(captures, folder / "with", {"captures": {"kind": "hdf5"}, "tracker": dict(sink)})
        below = _training(alone, folder / "without", {"captures": {"kind": "hdf5"}})
        found = by_turns({"with": lambda: above.seconds(STEPS), "without": lambda: below.seconds(STEPS)}, TURNS)
        ends = {}
        for name, exits in (("with", captures), ("without", alone)):
            began = perf_counter()
            exits.close()
            ends[name] = perf_counter() - began
    return ratios(found, "with", "without"), interval([ends["with"] - ends["without"]])


def _training(exits: ExitStack, folder: Path, sinks: Mapping[str, Any]) -> Probed:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(BATCH, WIDTH)

    def step(model: nn.Module) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return Probed(exits, folder, model, step, hook="forward", transforms=[{"kind": "stats"}], sinks=sinks)


@contextmanager
def _mlflow_server(folder: Path) -> Iterator[str]:
    """A server with a database, as its documentation starts one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = ["--host", "127.0.0.1", "--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/server.db", "--workers", "1"]
    server = subprocess.Popen([sys.executable, "-m", "mlflow", "server", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            try:
                with urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                    break
            except (URLError, OSError):
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
