"""A whole training job with and without probes: wall time to the last sealed file.

Usage: python benchmarks/job.py [--turns N]

An encoder of BERT's shape (6 layers, width 384, batch 8 by 64 tokens) is trained for 3 epochs of 40 steps; all six layer
outputs are captured at every step, as they are or as `stats`. The variants run by turns in one process with one torch
thread; the rivals keep clones and `torch.save` them at the end of each epoch, or append to h5py in the hook.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import h5py
import torch
from torch import Tensor, nn

import probes

EPOCHS, STEPS = 3, 40
LAYERS, WIDTH, BATCH, TOKENS = 6, 384, 8, 64
PLAIN = {"hook": "forward", "modules": ["layers.*"], "dims": ["batch", "token", "feature"]}
STATS = {**PLAIN, "transforms": [{"kind": "stats"}]}


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)


def train(model: nn.Module, epochs: Any, steps: Callable[[Any], Any], after: Callable[[int], None] = lambda epoch: None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(BATCH, TOKENS, WIDTH)
    for epoch in epochs:
        for _ in steps(range(STEPS)):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        after(epoch)


def bare(_folder: Path) -> None:
    train(encoder(), range(EPOCHS), iter)


def probed(folder: Path, probe: dict[str, Any]) -> None:
    model = encoder()
    with probes.attach(model, {"version": 1, "probes": {"p": probe}}, out=folder / "run") as run:
        train(model, run.epochs(EPOCHS), run.steps)


def saved(folder: Path) -> None:
    """Clones in a list, one `torch.save` at the end of each epoch."""
    model, kept = encoder(), list[Tensor]()
    for layer in model.layers:
        layer.register_forward_hook(lambda m, a, output: kept.append(output.detach().clone()))

    def flush(epoch: int) -> None:
        torch.save(kept, folder / f"{epoch}.pt")
        kept.clear()

    train(model, range(EPOCHS), iter, flush)


def appended(folder: Path) -> None:
    """Chunked h5py datasets, appended to in the hook."""
    model = encoder()
    with h5py.File(folder / "rival.h5", "w") as file:
        shape = (BATCH, TOKENS, WIDTH)
        for index, layer in enumerate(model.layers):
            data = file.create_dataset(str(index), (0, *shape), maxshape=(None, *shape), chunks=(1, *shape), dtype="f4")

            def save(_module: nn.Module, _args: Any, output: Tensor, data: Any = data) -> None:
                data.resize(len(data) + 1, axis=0)
                data[-1] = output.detach().numpy()

            layer.register_forward_hook(save)
        train(model, range(EPOCHS), iter)


VARIANTS: dict[str, Callable[[Path], None]] = {
    "probes": lambda folder: probed(folder, PLAIN),
    "probes, stats": lambda folder: probed(folder, STATS),
    "clones and torch.save": saved,
    "h5py append in the hook": appended,
}


def seconds(variant: Callable[[Path], None]) -> float:
    with tempfile.TemporaryDirectory() as place:
        began = perf_counter()
        variant(Path(place))
        return perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    turns = int(sys.argv[sys.argv.index("--turns") + 1]) if "--turns" in sys.argv else 5
    seconds(bare)
    ratios: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(turns):
        base = seconds(bare)
        for name, variant in VARIANTS.items():
            ratios[name].append(seconds(variant) / base)
    for name, found in ratios.items():
        print(f"{name:28} {statistics.median(found):.3f} of the run without   [{min(found):.3f} .. {max(found):.3f}]")


if __name__ == "__main__":
    main()
