"""What people write or install instead: the same model, the same captures, the same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, redirect_stdout, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import torch
from torch import Tensor, nn

from benchmarks.row import Row
from benchmarks.stack import MODULES, Hook, Probed, call, hooked, stack
from benchmarks.turns import by_turns, ratios, seconds

STEPS = 12
TURNS = 7
TOPIC = "Alternatives: time divided by the time of `probes` for the same captures (above 1: slower than `probes`)"
PACKAGES = {"nnsight": "nnsight", "torchlens": "torchlens", "msprobe": "mindstudio-probe"}
SUFFIXES = {"nnsight": ", torch.save at the end", "torchlens": ", kept in memory", "msprobe": ""}


class H5pyAppend:
    """Appending to a chunked dataset in the hook, as most recipes do."""

    def __init__(self, folder: Path, x: Tensor, modules: int = MODULES, **options: Any) -> None:
        self.path = folder / "rival.h5"
        self.file = h5py.File(self.path, "w")
        shape, chunk, limit = (0, *x.shape), (1, *x.shape), (None, *x.shape)
        self.sets = [self.file.create_dataset(str(i), shape, maxshape=limit, chunks=chunk, dtype="f4", **options) for i in range(modules)]

    def close(self) -> None:
        self.file.close()
        self.path.unlink()

    def __call__(self, index: int) -> Hook:
        data = self.sets[index]

        def save(_module: nn.Module, _args: Any, output: Tensor) -> None:
            data.resize(len(data) + 1, axis=0)
            data[-1] = output.detach().numpy()

        return save


def cloned(folder: Path, x: Tensor) -> float:
    """Clones in a list, one `torch.save` at the end."""
    kept: list[Tensor] = []

    def run() -> None:
        hooked(lambda _: lambda m, a, output: kept.append(output.detach().clone()), x, STEPS)
        torch.save(kept, folder / "kept.pt")

    return seconds(run)


def saved(folder: Path, x: Tensor) -> float:
    """One `torch.save` for each tensor."""
    target = folder / "saved"
    target.mkdir(exist_ok=True)
    names = iter(range(MODULES * STEPS))
    return hooked(lambda _: lambda m, a, output: torch.save(output.detach(), target / f"{next(names)}.pt"), x, STEPS)


def watched(folder: Path, x: Tensor) -> float:
    """Statistics as trackers take them: a histogram of 64 bins and four numbers a tensor, as one line of JSON a step."""
    line: dict[str, Any] = {}

    def hook(index: int) -> Hook:
        def describe(_module: nn.Module, _args: Any, output: Tensor) -> None:
            flat = output.detach().flatten()
            low, high = flat.min().item(), flat.max().item()
            bins = torch.histc(flat, 64, low, high).tolist()
            line[str(index)] = {"bins": bins, "min": low, "max": high, "mean": flat.mean().item(), "std": flat.std().item()}
            if index == MODULES - 1:
                log.write(json.dumps(line) + "\n")

        return describe

    with (folder / "watched.jsonl").open("w", encoding="utf-8") as log:
        return hooked(hook, x, STEPS)


def appended(folder: Path, x: Tensor, **options: Any) -> float:
    with closing(H5pyAppend(folder, x, **options)) as hook:
        return hooked(hook, x, STEPS)


def idle(_folder: Path, x: Tensor) -> float:
    return hooked(lambda _: lambda *_: None, x, STEPS)


RIVALS: dict[str, Callable[[Path, Tensor], float]] = {
    "no-op hooks": idle,
    "list of clones, torch.save at the end": cloned,
    "h5py append in the hook": appended,
    "h5py append in the hook, gzip": partial(appended, compression="gzip"),
    "one torch.save for each tensor": saved,
    "statistics for a tracker, divided by `stats` of `probes`": watched,
}


def nnsight(folder: Path, x: Tensor) -> float:
    from nnsight import NNsight

    model, kept = NNsight(stack()), []

    def run() -> None:
        for _ in range(STEPS):
            with model.trace(x):
                for module in model:
                    kept.append(module.output.clone().save())
        torch.save(kept, folder / "nnsight.pt")

    return seconds(run)


def torchlens(_folder: Path, x: Tensor) -> float:
    import torchlens as lens

    model, kept = stack(), []
    take = getattr(lens, "log_forward_pass", None) or lens.trace

    def run() -> None:
        for _ in range(STEPS):
            kept.append(take(model, x))

    return seconds(run)


def msprobe(folder: Path, x: Tensor) -> float:
    from msprobe.pytorch import PrecisionDebugger

    target = folder / "msprobe"
    config = {
        "task": "tensor",
        "dump_path": str(target),
        "rank": [],
        "step": [],
        "level": "L0",
        "tensor": {"scope": [], "list": [], "data_mode": ["output"]},
    }
    (folder / "msprobe.json").write_text(json.dumps(config), encoding="utf-8")
    debugger, model = PrecisionDebugger(config_path=str(folder / "msprobe.json")), stack()

    def run() -> None:
        for _ in range(STEPS):
            debugger.start(model=model)
            model(x)
            debugger.stop()
            debugger.step()

    taken = seconds(run)
    shutil.rmtree(target, ignore_errors=True)
    return taken


def hand_written(exits: ExitStack, folder: Path, x: Tensor) -> dict[str, Callable[[], float]]:
    ours = Probed(exits, folder, stack(), lambda model: model(x), hook="forward")
    stats = Probed(exits, folder, stack(), lambda model: model(x), hook="forward", transforms=[{"kind": "stats"}])
    return {
        "bare": lambda: call(stack(), x, range(STEPS)),
        "ours": lambda: ours.seconds(STEPS),
        "ours, stats": lambda: stats.seconds(STEPS),
        **{name: partial(rival, folder, x) for name, rival in RIVALS.items()},
    }


def rows(folder: Path) -> Iterator[Row]:
    for elements, size in ((1 << 10, "4 KiB"), (1 << 14, "64 KiB")):
        x = torch.randn(elements)
        with ExitStack() as exits:
            found = by_turns(hand_written(exits, folder, x), TURNS)
        for name in RIVALS:
            base = "ours, stats" if "`stats`" in name else "ours"
            yield Row(TOPIC, f"{size}: {name}", ratios(found, name, base, "bare"))
    yield from installed(folder, torch.randn(1 << 10))


def installed(folder: Path, x: Tensor) -> Iterator[Row]:
    """Packages, where they are installed; see README.md next to this file."""
    for name, work in {"nnsight": nnsight, "torchlens": torchlens, "msprobe": msprobe}.items():
        with suppress(PackageNotFoundError, ImportError), ExitStack() as exits:
            label = f"4 KiB: {PACKAGES[name]} {version(PACKAGES[name])}{SUFFIXES[name]}"
            ours = Probed(exits, folder, stack(), lambda model: model(x), hook="forward")
            variants = {
                "bare": lambda: call(stack(), x, range(STEPS)),
                "ours": partial(ours.seconds, STEPS),
                label: partial(work, folder, x),
            }
            with redirect_stdout(StringIO()):
                found = by_turns(variants, 2, warm=0)
            yield Row(TOPIC, label, ratios(found, label, "ours", "bare"))
