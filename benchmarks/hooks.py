"""What a probe adds to a module's call, against the hooks people write by hand.

Usage: python benchmarks/hooks.py [--json FILE]

Every variant sees the same 25 modules and the same bytes. Variants run by turns, every ratio is taken within a turn; the
median and the quartiles are printed. Ours includes the step's commit and the run's own hooks on the root.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import h5py
import torch
from torch import Tensor, nn

import probes

MODULES = 25
STEPS = 12
TURNS = 15

Hook = Callable[[nn.Module, Any, Tensor], None]


def stack() -> nn.Sequential:
    return nn.Sequential(*(nn.Identity() for _ in range(MODULES)))


def forward_seconds(model: nn.Module, x: Tensor, steps: Any) -> float:
    began = perf_counter()
    for _ in steps:
        model(x)
    return perf_counter() - began


def with_hooks(hook: Callable[[int], Hook], x: Tensor) -> float:
    model = stack()
    for index, module in enumerate(model):
        module.register_forward_hook(hook(index))
    return forward_seconds(model, x, range(STEPS))


@contextmanager
def h5py_hooks(folder: Path, x: Tensor) -> Iterator[Callable[[int], Hook]]:
    """Appending to a chunked dataset in the hook, as most recipes do."""
    with h5py.File(folder / "rival.h5", "w") as file:
        sets = [
            file.create_dataset(str(i), (0, *x.shape), maxshape=(None, *x.shape), chunks=(1, *x.shape), dtype="f4") for i in range(MODULES)
        ]

        def hook(index: int) -> Hook:
            def save(_module: nn.Module, _args: Any, output: Tensor) -> None:
                data = sets[index]
                data.resize(len(data) + 1, axis=0)
                data[-1] = output.detach().numpy()

            return save

        yield hook
    (folder / "rival.h5").unlink()


def ours(folder: Path, x: Tensor, steps: dict[str, Any]) -> float:
    model = stack()
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["*"], "when": {"steps": steps}, "expect": {"fires": "some"}}}}
    run = probes.attach(model, spec, out=folder / f"run-{perf_counter()}")
    with ExitStack() as exits:
        exits.push(lambda *_: True)  # a run that was never due ends by saying so
        exits.enter_context(run)
        list(run.steps([0]))
        with run.step():
            model(x)  # descriptors are written once, outside the measurement
        return forward_seconds(model, x, run.steps(range(STEPS)))


def backward_seconds(arm: Callable[[nn.Module], Any], x: Tensor) -> float:
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(MODULES)))
    for module in model:
        arm(module)
    began = perf_counter()
    for _ in range(STEPS):
        model(x).sum().backward()
    return perf_counter() - began


def full_backward(module: nn.Module) -> None:
    saved: list[Tensor] = []

    def save(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        saved.append(outputs[0].clone())
        if len(saved) > 1:
            saved.pop(0)

    module.register_full_backward_hook(save)


def our_backward(folder: Path, x: Tensor) -> float:
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(MODULES)))
    spec = {"version": 1, "probes": {"p": {"hook": "backward", "modules": ["*"]}}}
    with probes.attach(model, spec, out=folder / f"run-{perf_counter()}") as run:
        with run.step():
            model(x).sum().backward()
        began = perf_counter()
        for _ in run.steps(range(STEPS)):
            model(x).sum().backward()
        return perf_counter() - began


def turn(folder: Path, x: Tensor) -> dict[str, float]:
    bare = forward_seconds(stack(), x, range(STEPS))
    empty = with_hooks(lambda _: lambda *_: None, x) - bare
    kept: list[Tensor] = []
    clone = with_hooks(lambda _: lambda m, a, o: kept.append(o.clone()), x) - bare
    kept.clear()
    due = ours(folder, x, {"from": 0}) - bare
    idle = ours(folder, x, {"at": [1 << 30]}) - bare
    with h5py_hooks(folder, x) as hook:
        append = with_hooks(hook, x) - bare
    return {
        "clone / no-op": clone / empty,
        "ours / no-op": due / empty,
        "not due / no-op": idle / empty,
        "h5py append / ours": append / due,
    }


def gradient_turn(folder: Path, x: Tensor) -> dict[str, float]:
    bare = backward_seconds(lambda module: None, x)
    full = backward_seconds(full_backward, x) - bare
    return {"gradient: ours / full backward hook": (our_backward(folder, x) - bare) / full}


def report(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [round(q, 3) for q in statistics.quantiles([row[name] for row in rows], n=4)] for name in rows[0]}


def main() -> None:
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for elements, label in ((1 << 10, "4 KiB"), (1 << 14, "64 KiB"), (1 << 18, "1 MiB")):
            x = torch.randn(elements)
            figures[label] = report([turn(folder, x) for _ in range(TURNS)])
        x = torch.randn(32, 32)
        figures["4 KiB gradient"] = report([gradient_turn(folder, x) for _ in range(TURNS)])
    for size, rows in figures.items():
        for name, (low, median, high) in rows.items():
            print(f"{size:15} {name:38} {median:8.2f}   [{low:.2f} .. {high:.2f}]")
    if "--json" in sys.argv:
        Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
