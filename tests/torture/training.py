"""A training whose every capture is known beforehand, and which says what was acknowledged to it.

Run by the nursery in a process of its own: two layers, three captures per step at most, 3 epochs of 50 steps by default.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tests.torture import shim

EPOCHS, STEPS = 3, 50
SMALL = (8, 16)
WIDE = 20_000  # float64: more than the 128 KiB from which a journal writes a capture where it stands
EVERY = 10

Array = np.ndarray[Any, Any]


def small(epoch: int, step: int) -> Array:
    """What the small layer gives out in a step."""
    return (np.arange(128, dtype=np.float32).reshape(SMALL) % 97) + np.float32(epoch * 1000 + step)


def back(epoch: int, step: int) -> Array:
    """The gradient that comes back to it."""
    return np.full(SMALL, epoch * 1000 + step + 0.5, np.float32)


def wide(epoch: int, step: int) -> Array:
    """What the wide layer gives out, every tenth step."""
    return np.arange(WIDE, dtype=np.float64) + (epoch * 1000 + step)


SERIES: dict[tuple[str, str, str], tuple[Callable[[int, int], Array], int]] = {
    ("small", "small", "output"): (small, 1),
    ("back", "small", "grad_output"): (back, 1),
    ("wide", "wide", "output"): (wide, EVERY),
}


def spec(order: dict[str, Any]) -> dict[str, Any]:
    """The spec of the training."""
    often = {"when": {"steps": {"every": order.get("every", EVERY)}}}
    probes = {
        "small": {"hook": "forward", "modules": ["small"]},
        "back": {"hook": "backward", "modules": ["small"]},
        "wide": {"hook": "forward", "modules": ["wide"], **often},
    }
    return {"version": 1, "name": "torture", "probes": probes, **order.get("spec", {})}


def train(order: dict[str, Any]) -> int:
    """Train as ordered, and return what the process is to exit with.

    Args:
        order: `out`, `acks` (a file that gets one line per acknowledged step) and optionally `epochs`, `steps`, `every`,
            `spec` (keys of the spec), `fault` and `sealer_fault` (texts of the shim), `sealer_once` (a file
            that marks that the sealer has had its fault), `end` (how it ends: `how`, `epoch`,
            `step`), `gate` (a file to wait for) and `boot` (the name of the machine's start).
    """
    import probes
    from probes.errors import ProbesError
    from probes.journal import writer as journal
    from probes.run_directory import sealer_process as sealer

    sealer.PATIENCE = order.get("sealer_patience", sealer.PATIENCE)
    if "boot" in order:
        journal.boot_id = lambda: order["boot"]
    if "gate" in order:
        while not Path(order["gate"]).exists():
            pass
    shim.arm(order.get("fault", ""))
    try:
        with probes.attach(_model(), spec(order), out=order["out"], **order.get("attach", {})) as run:
            _loop(run, order, os.open(order["acks"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except ProbesError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _model() -> Any:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.wide = nn.Identity(), nn.Identity()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
            self.wide(base)
            return self.small(x * self.weight)

    return Net()


def _loop(run: Any, order: dict[str, Any], acks: int) -> None:
    import torch

    from tests.torture.quota import limit

    model = next(iter(run.plan.trees.values())).model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    end, every = order.get("end", {}), order.get("every", EVERY)
    # Now, and not before: what asks git for the revision is no sealer.
    os.environ |= {shim.VARIABLE: order.get("sealer_fault", ""), f"{shim.VARIABLE}_ONCE": order.get("sealer_once", "")}
    epochs, steps = order.get("epochs", EPOCHS), order.get("steps", STEPS)
    notes = os.open(order["acks"] + ".notes", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.write(notes, b"began true\nsteps %d\n" % (epochs * steps))
    trained = 0
    for epoch in run.epochs(epochs, order.get("first", 0)):
        for step in range(steps):
            with run.step():
                base = torch.from_numpy(wide(epoch, step)) if step % every == 0 else torch.zeros(1)
                out = model(torch.from_numpy(small(epoch, step)), base)
                (out * torch.from_numpy(back(epoch, step))).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if (epoch, step) == (end.get("epoch"), end.get("step")):
                    os.write(notes, b"ending_at %f\n" % monotonic())
                    _end(end["how"])
            if not run.engine.failures.stopped:
                os.write(acks, b"%d %d\n" % (epoch, step))
                shim.note(f"{epoch} {step}")
            trained += 1
            if trained == 1 and "shrink" in order:
                _shrink(*order["shrink"])
            if trained == 1 and "fill" in order:
                fill(*order["fill"])
            if trained == 1 and "quota" in order:
                limit(*order["quota"])
    os.write(notes, b"trained %d\n" % trained)


def _shrink(disk: str, size: int) -> None:
    """Make a disk as small as possible, but not smaller than a limit."""
    used = sum(path.stat().st_blocks * 512 for path in Path(disk).rglob("*") if path.is_file())
    size = max(size, -(-used // 4096) * 4096 + 4096)
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def fill(ballast: str, size: int) -> None:
    """Take all room of a disk but so many bytes, by a file."""
    with Path(ballast).open("wb") as file:
        free = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - size))


def _end(how: str) -> None:
    """End the process in the middle of a step, in one of the ways in which trainings end."""
    if how == "exception":
        raise RuntimeError("the loss is not a number")
    if how == "exit":
        sys.exit(7)
    if how == "_exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, how))
