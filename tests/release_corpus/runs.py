"""The runs of the corpus: `python runs.py NAME STAGE` trains one of them and writes what hooks of its own saw.

A run is a function. It writes the run directory `NAME`, and `noted` writes `NAME.rank-N.jsonl` next to it: one line for each
capture of a committed step, with the clock and the SHA-256 of the bytes that a plain hook of PyTorch saw at that moment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

import probes


class Planned(NamedTuple):
    """A run of the corpus.

    Attributes:
        train: what makes it; takes the name of the run directory and the stage.
        stages: how many processes make it, one after the other.
        ranks: how many processes each of them is.
        killed: the stages that end by SIGKILL.
        failed: the stages that end with exit code 1.
        argv: the command line of `probes`, where `probes run` makes it.
    """

    train: Callable[[str, int], None]
    stages: int = 1
    ranks: int = 1
    killed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    argv: tuple[str, ...] = ()


RUNS: dict[str, Planned] = {}


def run(**about: Any) -> Callable[[Callable[[str, int], None]], Callable[[str, int], None]]:
    """Enter a function into `RUNS` under its name, with `-` for `_`."""

    def enter(train: Callable[[str, int], None]) -> Callable[[str, int], None]:
        RUNS[train.__name__.replace("_", "-")] = Planned(train, **about)
        return train

    return enter


# What our own hooks see


def raw(tensor: Tensor) -> bytes:
    """The bytes of a dense tensor on the host, in C order."""
    return tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class Notes:
    """Plain hooks, and what they saw in the steps that were committed."""

    def __init__(self, name: str) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.path = Path(f"{name}.rank-{self.rank}.jsonl")
        self.clock: dict[str, Any] = {"epoch": 0, "phase": "train", "step": 0, "microstep": 0}
        self.calls: dict[tuple[str, str, str], int] = {}
        self.seen: list[dict[str, Any]] = []
        self.on = True

    def at(self, epoch: int, step: int, phase: str = "train", microstep: int = 0) -> None:
        """Say what the clock shows now."""
        self.clock = {"epoch": epoch, "phase": phase, "step": step, "microstep": microstep}
        self.calls.clear()

    def note(self, probe: str, target: str, leaf: str, tensor: Tensor) -> None:
        """Note one capture."""
        if not self.on:
            return
        series = (probe, target, leaf)
        call = self.calls.get(series, 0)
        self.calls[series] = call + 1
        about = {"probe": probe, "target": target, "leaf": leaf, "dtype": str(tensor.dtype).removeprefix("torch.")}
        about |= {**self.clock, "call": call, "rank": self.rank, "shape": list(tensor.shape), "sha256": sha256(raw(tensor)).hexdigest()}
        self.seen.append(about)

    def outputs(self, probe: str, model: nn.Module, *targets: str, gradients: bool = False) -> Notes:
        """Look at what modules return, and at the gradient of it."""
        for target in targets:
            model.get_submodule(target).register_forward_hook(self._hook(probe, target, gradients))
        return self

    def _hook(self, probe: str, target: str, gradients: bool) -> Callable[..., None]:
        def look(_module: nn.Module, _args: object, output: Any) -> None:
            found = {f"output.{key}": one for key, one in output.items()} if isinstance(output, dict) else {"output": output}
            for leaf, tensor in found.items():
                self.note(probe, target, leaf, tensor)
                if gradients:
                    tensor.register_hook(lambda grad, leaf=leaf: self.note(probe, target, f"grad_{leaf}", grad))

        return look

    def committed(self) -> None:
        """Write down what was seen: the step is safe."""
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in self.seen)
        self.seen.clear()

    def dropped(self) -> None:
        """Forget what was seen: the step never was."""
        self.seen.clear()


# Models and data


class Net(nn.Module):
    """Two linear layers, with a ReLU between that overwrites what the first has returned."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.a = nn.Linear(4, width)
        self.relu = nn.ReLU(inplace=True)
        self.b = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.b(self.relu(self.a(x)))
        return found


class Gives(nn.Module):
    """A model whose part returns a given value; a weight of its own lets it train."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Part()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, value: Any) -> Tensor:
        self.part(value)
        return self.weight


class Part(nn.Module):
    def forward(self, value: Any) -> Any:
        return value


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def batches(count: int, size: int = 5, seed: int = 7) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 4, generator=generator) for _ in range(count)]


def spec(probes_: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "name": "corpus", "probes": dict(probes_), **more}


OUTPUTS = {"hook": "forward", "modules": ["a", "b"]}
BOTH = {"modules": ["a", "b"], "values": ["output", "grad_output"]}
PART = {"hook": "forward", "modules": ["part"]}


def learn(model: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def loop(run: Any, model: nn.Module, notes: Notes, epochs: int = 1, steps: int = 3, **more: Any) -> None:
    """Train, each step noted once it is committed."""
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in run.epochs(epochs, **more):
        for step, x in enumerate(batches(steps, seed=epoch)):
            notes.at(epoch, step)
            with run.step():
                learn(model, x, optimizer)
            notes.committed()


def show(name: str, values: list[Any], probe: dict[str, Any] | None = None, noted: bool = True, **more: Any) -> None:
    """One epoch in which a module returns one value after the other."""
    model, notes = Gives(), Notes(name)
    with probes.attach(model, spec({"p": probe or PART}, **more), out=name) as run, run.epoch(0):
        if noted:
            notes.outputs("p", model, "part")
        for step, value in enumerate(values):
            notes.at(0, step)
            with run.step():
                model(value)
            notes.committed()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def until_sealed(name: str, lines: int, ledger: str = "ledger.jsonl") -> None:
    """Wait until so many files are sealed, so that what a kill leaves behind does not depend on who is faster."""
    for _ in range(600):
        with suppress(FileNotFoundError):
            if len((Path(name) / ledger).read_bytes().splitlines()) >= lines:
                time.sleep(0.2)  # the journal goes after the line
                return
        time.sleep(0.05)
    raise TimeoutError(f"{name} has no {lines} sealed files after 30 seconds")


# What values look like

PLAIN = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
EIGHT = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")
OTHERS = ("complex32", "complex64", "complex128")


def bits(name: str, step: int, shape: tuple[int, ...] = (2, 3)) -> Tensor:
    """A tensor of any bits at all, NaNs with payloads and subnormal numbers among them."""
    dtype = getattr(torch, name)
    generator = np.random.default_rng([step, *name.encode()])
    count = int(np.prod(shape)) * dtype.itemsize
    content = generator.integers(0, 2 if name == "bool" else 256, count, dtype=np.uint8)
    return torch.from_numpy(content).view(dtype).reshape(shape)


@run()
def dtypes(name: str, _stage: int) -> None:
    """Every dtype, with any bits."""
    there = [one for one in (*PLAIN, *EIGHT, *OTHERS) if hasattr(torch, one)]
    show(name, [{one: bits(one, step) for one in there} for step in range(3)])


@run()
def composites(name: str, _stage: int) -> None:
    """Tensors that are several pieces of memory: sparse, nested and quantized ones."""
    warnings.simplefilter("ignore")  # torch calls several of these layouts prototypes, or says that they will go
    dense = torch.tensor([[0.0, 1.5, 0.0, -2.0], [0.0, 0.0, 3.0, 0.0]])
    twice = torch.tensor([[0, 0, 1], [1, 1, 2]])

    def of(step: int) -> dict[str, Tensor]:
        value = dense * (step + 1)
        return {
            "coo": torch.sparse_coo_tensor(twice, torch.arange(3.0) + step, (2, 4)),
            "csr": value.to_sparse_csr(),
            "csc": value.to_sparse_csc(),
            "bsr": value.to_sparse_bsr((1, 2)),
            "bsc": value.to_sparse_bsc((1, 2)),
            "nested": torch.nested.nested_tensor([torch.ones(2, 3) * step, torch.zeros(1, 4)]),
            "jagged": torch.nested.nested_tensor([torch.ones(2, 3) * step, torch.zeros(4, 3)], layout=torch.jagged),
            "quint8": torch.quantize_per_tensor(value, 0.5, 3, torch.quint8),
            "qint32": torch.quantize_per_tensor(value, 0.5, 3, torch.qint32),
            "channels": torch.quantize_per_channel(value, torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8),
        }

    show(name, [of(step) for step in range(2)], noted=False)


@run()
def shapes(name: str, _stage: int) -> None:
    """Stacked, concatenated and ragged captures, of no axes, of no elements and of any strides."""

    def of(step: int) -> dict[str, Tensor]:
        some = torch.arange(24.0).reshape(2, 3, 4) + step
        return {
            "rows": some.reshape(-1, 4)[: 6 - 2 * step],
            "last": some.reshape(-1, 4)[: (4, 4, 1)[step]].to(torch.bfloat16),
            "ragged": torch.arange(12)[: 6 + 2 * step].reshape(2, 3 + step),
            "ranks": [torch.tensor(1.5), some[0], some][step],
            "complex": torch.complex(some, -some).reshape(4, 6)[: 1 + step],
            "scalar": torch.tensor(2.5 + step),
            "flag": torch.tensor(step == 1),
            "empty": torch.empty(0, 3),
            "none": torch.empty(2, 0, dtype=torch.int64),
            "sometimes": torch.ones(step, 2),
            "transposed": some[0].t(),
            "expanded": some[0, :, :1].expand(3, 2),
            "backwards": some.to(torch.complex64).conj(),
        }

    show(name, [of(step) for step in range(3)])


@run()
def ragged_complex(name: str, _stage: int) -> None:
    """Complex captures whose offsets count pairs; `probes verify` of release 0.1.0 counts numbers, and doubts them."""
    some = torch.complex(torch.arange(24.0), torch.ones(24)).reshape(4, 6)
    show(name, [some[: 1 + step, : 6 - step] for step in range(3)])


@run()
def large(name: str, _stage: int) -> None:
    """Captures of several digest blocks, of one block each, and a series at a page of the file."""
    show(name, [{"big": torch.arange(20_000.0) * (step + 1), "small": torch.arange(3_000) + step} for step in range(8)])


def compressed(name: str, how: str) -> None:
    values = []
    for step in range(3):
        count = torch.arange(36_000)
        values.append(
            {
                "long": (count // 50 + step).to(torch.int64),  # more than a chunk
                "half": (count[:900] % 17).to(torch.bfloat16).reshape(30, 30),
                "rows": torch.arange(40.0).reshape(-1, 4)[: 10 - 3 * step],
                "ragged": torch.arange(6 + 2 * step, dtype=torch.int16).reshape(2, 3 + step),
                "empty": torch.empty(0, 2),
                "scalar": torch.tensor(step, dtype=torch.uint8),
                "pair": torch.complex(torch.arange(4.0), torch.ones(4) * step),
            }
        )
    show(name, values, sinks={"captures": {"kind": "hdf5", "compression": how}})


@run()
def gzip(name: str, _stage: int) -> None:
    """Compressed by gzip."""
    compressed(name, "gzip")


@run()
def zstd(name: str, _stage: int) -> None:
    """Compressed by Zstandard."""
    compressed(name, "zstd")


@run()
def blosc2(name: str, _stage: int) -> None:
    """Compressed by Blosc2."""
    compressed(name, "blosc2")


@run()
def changing(name: str, _stage: int) -> None:
    """One series whose dtype changes, so that it is two."""
    show(name, [bits(one, step, (3,)) for step, one in enumerate(("float32", "int64", "float32", "bfloat16"))])


class Odd(nn.Module):
    """Paths, leaves and phases of characters that a name in a file must escape."""

    NAMES = ("a/b", "100%", "x:y", "user@host", "~home", "déjà vu", "new\nline", "…")

    def __init__(self) -> None:
        super().__init__()
        for name in self.NAMES:
            self.add_module(name, nn.Linear(2, 2))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = {}
        for name in self.NAMES:
            x = self.get_submodule(name)(x)
            found[name] = x
        return {**found, "": x * 2, "..": x * 3}


@run()
def names(name: str, _stage: int) -> None:
    """Names of any characters."""
    torch.manual_seed(0)
    model, notes = Odd(), Notes(name)
    probes_ = {
        "parts": {"hook": "forward", "modules": ["*"]},
        "root_1-a": {"hook": "forward", "modules": [""], "when": {"phases": ["eval", "Prüf/ung@1"]}},
    }
    with probes.attach(model, spec(probes_), out=name) as run, run.epoch(0):
        notes.outputs("parts", model, *Odd.NAMES)
        with run.step():
            model(torch.ones(1, 2))
        notes.committed()
        notes.on = False
        for phase in ("eval", "Prüf/ung@1"):
            with run.phase(phase), torch.no_grad():
                model(torch.ones(1, 2))


@run()
def many(name: str, _stage: int) -> None:
    """One probe with many targets."""
    torch.manual_seed(0)
    model, notes = nn.Sequential(*(nn.Linear(2, 2) for _ in range(48))), Notes(name)
    with probes.attach(model, spec({"p": {"hook": "forward", "modules": ["*"]}}), out=name) as run:
        notes.outputs("p", model, *(str(index) for index in range(48)))
        with run.epoch(0):
            for step in range(2):
                notes.at(0, step)
                with run.step():
                    model(torch.ones(1, 2) * step)
                notes.committed()


# Clocks


class Twice(nn.Module):
    """Calls one of its parts twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.b(self.a(torch.relu(self.a(x))))
        return found


@run()
def phases(name: str, _stage: int) -> None:
    """Two epochs of train and eval, ids of samples, accumulated batches, and a module that is called twice."""
    torch.manual_seed(0)
    model, notes = Twice(), Notes(name)
    optimizer = SGD(model.parameters(), lr=0.1)
    wanted = spec(
        {
            "acts": {"hook": "forward", "modules": ["a", "b"], "dims": ["sample", "unit"], "when": {"phases": ["train", "eval", "test"]}},
            "first": {
                "hook": "forward",
                "modules": ["a"],
                "when": {"calls": {"at": [0]}, "steps": {"every": 2}, "microsteps": {"at": [1]}},
                "expect": {"fires": "some"},
            },
        }
    )
    with probes.attach(model, wanted, out=name) as run:
        notes.outputs("acts", model, "a", "b")
        for epoch in run.epochs(2):
            data = [torch.randn(3 if index < 5 else 2, 4, generator=torch.Generator().manual_seed(index)) for index in range(6)]
            numbers = [[10 * index + row for row in range(len(x))] for index, x in enumerate(data)]
            for index, (x, _) in enumerate(run.steps(list(zip(data, numbers, strict=True)), accumulate=2, ids=lambda pair: pair[1])):
                notes.at(epoch, index // 2, microstep=index % 2)
                model(x).square().mean().backward()
                if index % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            model.eval()
            for phase in ("eval", "test"):
                with run.phase(phase), torch.no_grad():
                    for step, x in enumerate(data[4:]):
                        notes.at(epoch, step, phase)
                        model(x)
            model.train()
        notes.committed()


@run()
def ids(name: str, _stage: int) -> None:
    """Ids of samples that are texts, and batches of any size."""
    model, notes = net(), Notes(name)
    with probes.attach(model, spec({"p": OUTPUTS}), out=name) as run:
        notes.outputs("p", model, "a", "b")
        for epoch in run.epochs(2):
            for step, rows in enumerate((3, 1, 2)):
                notes.at(epoch, step)
                with run.step(ids=[f"{epoch}/{step}-ü{row}" for row in range(rows)]):
                    model(batches(1, rows, seed=step)[0])
                notes.committed()


@run()
def same_clock(name: str, _stage: int) -> None:
    """Steps that the loop names itself within a phase that it names: release 0.1.0 gives all of them the clock of the step before."""
    model = net()
    with probes.attach(model, spec({"p": {**OUTPUTS, "when": {"phases": ["train", "eval"]}}}), out=name) as run, run.epoch(0):
        data = batches(4)
        with run.step():
            model(data[0])
        with run.phase("eval"), torch.no_grad():
            for x in run.steps(data[1:]):
                model(x)


@run()
def segments(name: str, _stage: int) -> None:
    """Epochs cut into segments of three steps."""
    model, notes = net(), Notes(name)
    wanted = spec({"p": BOTH}, sinks={"captures": {"kind": "hdf5", "seal": {"steps": 3}}})
    with probes.attach(model, wanted, out=name) as run:
        notes.outputs("p", model, "a", "b", gradients=True)
        loop(run, model, notes, epochs=2, steps=8)


@run()
def late(name: str, _stage: int) -> None:
    """Gradients that arrive after their step, and after their epoch."""
    model = net()
    kept: list[Tensor] = []
    with probes.attach(model, spec({"p": {"hook": "backward", "modules": ["a", "b"]}}), out=name) as run:
        for epoch in run.epochs(2):
            for x in run.steps(batches(3, seed=epoch)):
                found = model(x).sum()
                if kept:
                    kept.pop().backward()
                kept.append(found)


@run()
def gradients(name: str, _stage: int) -> None:
    """Gradients of values and of parameters at every stage, with accumulation and clipping."""
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    weight = {"hook": "tensor", "tensors": ["a.weight", "b.bias"]}
    wanted = spec(
        {
            "values": {"modules": ["b"], "values": ["input", "output", "grad_input", "grad_input_total", "grad_output"]},
            "reference": {"hook": "tensor", "tensors": ["a:output"]},
            **{stage: {**weight, "stage": stage} for stage in ("increment", "accumulated", "final")},
            "data": {**weight, "values": ["data"]},
        },
        provenance={"weights": "epochs"},
    )
    with probes.attach(model, wanted, out=name) as run:
        for epoch in run.epochs(2):
            for index, x in enumerate(run.steps(batches(6, seed=epoch), accumulate=2)):
                model(x).square().mean().backward()
                if index % 2:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()


TRANSFORMS: dict[str, list[dict[str, Any]]] = {
    "stats": [{"kind": "stats"}],
    "histogram": [{"kind": "histogram", "bins": 4, "range": [-1, 1]}],
    "quantile": [{"kind": "quantile", "q": [0.05, 0.5, 0.95]}],
    "quantile-unit": [{"kind": "quantile", "q": [0.5], "dim": "unit"}],
    "topk": [{"kind": "topk", "size": 2}],
    "where": [{"kind": "topk", "size": 2, "keep": "indices"}],
    "moments": [{"kind": "accumulate", "dims": ["sample"]}],
    "covariance": [{"kind": "accumulate", "what": "covariance", "dims": ["sample"]}],
    "half": [{"kind": "cast", "dtype": "bfloat16"}, {"kind": "select", "dim": "unit", "indices": [0, 2]}],
    "mean": [{"kind": "einops", "pattern": "sample unit -> unit", "reduction": "mean"}],
    "flat": [{"kind": "einops", "pattern": "sample unit -> (sample unit)"}],
    "print": [{"kind": "fingerprint"}],
    "codes": [{"kind": "quantize", "range": [-2, 2]}],
    "norm": [{"kind": "abs"}, {"kind": "norm", "dims": ["unit"]}],
    "sample": [{"kind": "sample", "size": 4}],
    "project": [{"kind": "project", "size": 2}],
    "largest": [{"kind": "reduce", "op": "max"}],
    "entropy": [{"kind": "entropy", "of": "logits"}],
}


@run()
def transforms(name: str, _stage: int) -> None:
    """Every transform, with the labels that it gives."""
    model, notes = net(), Notes(name)
    wanted = {
        key: {"hook": "forward", "modules": ["a"], "dims": ["sample", "unit"], "transforms": each} for key, each in TRANSFORMS.items()
    }
    with probes.attach(model, spec(wanted), out=name) as run:
        loop(run, model, notes, epochs=2)


@run()
def models(name: str, _stage: int) -> None:
    """Two models, each with its optimizer."""
    torch.manual_seed(0)
    g, d = nn.Sequential(nn.Linear(3, 4)), nn.Sequential(nn.Linear(4, 1))
    og, od = SGD(g.parameters(), lr=0.1), SGD(d.parameters(), lr=0.1)
    probes_ = {
        **{f"acts-{key}": {"hook": "forward", "modules": ["0"], "model": key} for key in "gd"},
        **{f"final-{key}": {"hook": "tensor", "tensors": ["0.weight"], "stage": "final", "model": key} for key in "gd"},
    }
    wanted = spec(probes_, models={"g": "Sequential", "d": "Sequential"}, clock={"model": "g"})
    with probes.attach({"g": g, "d": d}, wanted, out=name) as run, run.epoch(0):
        for x in run.steps([torch.randn(2, 3) for _ in range(3)]):
            fake = g(x)
            od.zero_grad()
            (d(torch.ones(2, 4)).sum() - d(fake.detach()).sum()).backward()
            od.step()
            og.zero_grad()
            d(fake).sum().backward()
            og.step()


# Edits and triggers


@run()
def edits(name: str, _stage: int) -> None:
    """Values and gradients that the spec rewrites."""
    np.save("steer.npy", np.arange(18, dtype="f4").reshape(3, 6) / 7)

    def edited(target: str, edit: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"hook": "forward", "modules": [target], "dims": ["batch", "unit"], "edit": edit, **more}

    probes_ = {
        "mixup": edited("one.a", {"kind": "mixup", "alpha": 0.4, "seed": 3}),
        "mixed": {"hook": "forward", "modules": ["one.a"]},
        "unmixed": {"hook": "forward", "modules": ["one.a"], "sees": "original"},
        "noise": edited("one.b", {"kind": "noise", "std": 0.5, "seed": 1, "at": {"batch": 1}}),
        "noisy": {"modules": ["one.b"], "values": ["output", "grad_output"]},
        "patch": edited("two.a", {"kind": "replace", "from": {"file": "steer.npy"}, "at": {"batch": 2}}),
        "patched": {"hook": "forward", "modules": ["two.a"]},
        "larger": edited("two.b", {"kind": "scale", "by": 3.0}),
        "scaled": {"hook": "forward", "modules": ["two.b"]},
        "double": {"hook": "tensor", "tensors": ["two.b.weight"], "edit": {"kind": "scale", "by": 2.0}},
        "doubled": {"hook": "tensor", "tensors": ["two.b.weight"]},
        "single": {"hook": "tensor", "tensors": ["two.b.weight"], "sees": "original"},
    }
    torch.manual_seed(0)
    model = nn.ModuleDict({"one": Net(), "two": Net()})
    model.forward = lambda x: model["one"](x) + model["two"](x)  # type: ignore[method-assign]  # the run needs such a forward
    optimizer = SGD(model.parameters(), lr=0.1)
    with probes.attach(model, spec(probes_, allow_edits=True), out=name) as run, run.epoch(0):
        for x in run.steps(batches(3, 3)):
            learn(model, x, optimizer)


def hunt(name: str, then: str) -> None:
    """Logarithms, one of which is that of nothing."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Identity(), nn.Linear(3, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3))
        model[2].weight.fill_(0.5)
        model[2].bias.fill_(0.25)
    model[1].forward = torch.log  # type: ignore[method-assign]  # the run needs such a forward
    when = {"trigger": {"kind": "nonfinite", "before": 2, "then": then}}
    probes_ = {"hunt": {"modules": ["**"], "values": ["output", "grad_output"], "when": when}}
    data = [torch.full((2, 3), 1.0 + index) for index in range(8)]
    data[4][1, 2] = 0.0
    with probes.attach(model, spec(probes_), out=name) as run:
        for _ in run.epochs(1):
            for x in run.steps(data):
                model(x).square().mean().backward()


@run()
def trigger_stop(name: str, _stage: int) -> None:
    """A value that is not finite ends the training."""
    with suppress(probes.ProbesError):
        hunt(name, "stop")


@run()
def trigger_continue(name: str, _stage: int) -> None:
    """A value that is not finite is written down, with the steps before it."""
    hunt(name, "continue")


# How runs end


@run(stages=3)
def attempts(name: str, stage: int) -> None:
    """A run that is complete, two epochs of it again, and once more: one epoch comes to its end, and one does not."""
    torch.manual_seed(stage)
    model, notes = Net(), Notes(name)
    notes.on = False
    with probes.attach(model, spec({"p": BOTH}), out=name, resume=stage > 0) as run:
        if stage < 2:
            loop(run, model, notes, epochs=3 - stage, start=stage)
            return
        with run.epoch(0), run.step():
            model(batches(1)[0]).sum().backward()
        run.timeline.begin_epoch(1)
        for x in batches(2):
            with run.step():
                model(x).sum().backward()
        run.timeline.end_epoch(complete=False, reason="exception: KeyError")


@run(stages=2, killed=(0,))
def killed_and_resumed(name: str, stage: int) -> None:
    """A run that was killed in its second epoch, and continues with it."""
    model, notes = net(), Notes(name)
    with probes.attach(model, spec({"p": BOTH}), out=name, resume=stage > 0, take_over=stage > 0) as run:
        if stage:
            notes.outputs("p", model, "a", "b", gradients=True)
            loop(run, model, notes, epochs=3)
            return
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        for epoch in run.epochs(3):
            for step, x in enumerate(run.steps(batches(3, seed=epoch))):
                learn(model, x, optimizer)
                if (epoch, step) == (1, 2):
                    die()


@run(failed=(0,))
def exception(name: str, _stage: int) -> None:
    """An exception in the second epoch, in the middle of a step."""
    model, notes = net(), Notes(name)
    optimizer = SGD(model.parameters(), lr=0.1)
    with probes.attach(model, spec({"p": BOTH}), out=name) as run:
        notes.outputs("p", model, "a", "b", gradients=True)
        for epoch in run.epochs(2):
            for step, x in enumerate(batches(4, seed=epoch)):
                notes.at(epoch, step)
                with run.step():
                    learn(model, x, optimizer)
                    if (epoch, step) == (1, 2):
                        raise ValueError("the loop fails")
                notes.committed()


@run()
def limits(name: str, _stage: int) -> None:
    """A bound on the bytes of an epoch, which is reached."""
    model, notes = net(), Notes(name)
    notes.on = False
    with suppress(probes.ProbesError), probes.attach(model, spec({"p": BOTH}, limits={"bytes_per_epoch": "700 B"}), out=name) as run:
        loop(run, model, notes, epochs=2, steps=4)


@run()
def power(name: str, _stage: int) -> None:
    """Durability `power`: every step is synced."""
    model, notes = net(), Notes(name)
    with probes.attach(model, spec({"p": BOTH}, durability="power"), out=name) as run:
        notes.outputs("p", model, "a", "b", gradients=True)
        loop(run, model, notes, epochs=2)


@run()
def sinks(name: str, _stage: int) -> None:
    """Lines of JSON and of a terminal next to the file."""
    model, notes = net(), Notes(name)
    wanted = {"captures": {"kind": "hdf5"}, "log": {"kind": "jsonl", "path": "log.jsonl"}, "screen": {"kind": "console"}}
    probes_ = {
        "acts": {**OUTPUTS, "sinks": ["captures"]},
        "stats": {**OUTPUTS, "transforms": [{"kind": "stats"}], "sinks": ["captures", "log"]},
        "norm": {"hook": "tensor", "tensors": ["a.weight"], "stage": "final", "transforms": [{"kind": "norm"}]},
    }
    with probes.attach(model, spec(probes_, sinks=wanted), out=name) as run:
        notes.outputs("acts", model, "a", "b")
        loop(run, model, notes, epochs=2)


def two_ranks(name: str) -> Iterator[tuple[Any, nn.Module, Notes]]:
    torch.manual_seed(int(os.environ["RANK"]))
    model, notes = Net(), Notes(name)
    with probes.attach(model, spec({"p": BOTH}), out=name) as run:
        notes.outputs("p", model, "a", "b", gradients=True)
        yield run, model, notes


@run(ranks=2)
def ranks(name: str, _stage: int) -> None:
    """Two processes of one launch."""
    for run, model, notes in two_ranks(name):
        loop(run, model, notes, epochs=2)


def pair(name: str, moved: float) -> None:
    model, notes = net(), Notes(name)
    optimizer = SGD(model.parameters(), lr=0.1)
    with probes.attach(model, spec({"p": OUTPUTS}, tolerance={"float64": {"rtol": 0.1}}), out=name) as run:
        notes.outputs("p", model, "a", "b")
        for epoch in run.epochs(2):
            for step, x in enumerate(batches(4, seed=epoch)):
                if (epoch, step) == (1, 2):
                    with torch.no_grad():
                        model.b.bias[1] += moved
                notes.at(epoch, step)
                with run.step():
                    learn(model, x, optimizer)
                notes.committed()


@run()
def pair_a(name: str, _stage: int) -> None:
    """One of two runs that part in the second epoch."""
    pair(name, 0.0)


@run()
def pair_b(name: str, _stage: int) -> None:
    """The other, whose bias is moved."""
    pair(name, 0.001)


# The names of the script's module are its own, and `probes run` finds its model, loader and optimizer
SCRIPT = '''"""A training that knows nothing of probes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(TensorDataset(torch.randn(10, 4)), batch_size=4)
test = DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=3)
for _ in range(2):
    model.train()
    for (x,) in train:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for (x,) in test:
            model(x)
'''
SPEC = """# The spec of the run `script`.
version: 1
vars: {part: "2"}
defaults: {when: {phases: [train, eval]}}
probes:
  acts: {hook: forward, modules: ["0", "${part}"], dims: [sample, unit]}
  gradient: {hook: backward, modules: ["2"], when: {steps: {every: 2}, phases: [train]}}
"""


@run(
    argv=(
        "run",
        "--quiet",
        "--out",
        "script",
        "--tag",
        "purpose=corpus",
        "--set",
        "probes.gradient.dims=[sample, class]",
        "spec.yaml",
        "train.py",
    )
)
def script(name: str, _stage: int) -> None:
    """`probes run` around a script."""
    raise AssertionError("BUG: `probes run` makes it")


# What a SIGKILL leaves behind


@contextmanager
def killed_run(name: str, **more: Any) -> Iterator[tuple[Any, nn.Module, Notes]]:
    """A run whose notes go on from epoch to epoch."""
    model, notes = net(), Notes(name)
    with probes.attach(model, spec({"p": BOTH}, **more), out=name) as run:
        notes.outputs("p", model, "a", "b", gradients=True)
        yield run, model, notes


def steps_and_die(run: Any, model: nn.Module, notes: Notes, epoch: int, steps: int, *, within: bool) -> None:
    """Commit some steps of an epoch, then die, within the next step or after the last."""
    run.timeline.begin_epoch(epoch)
    optimizer = SGD(model.parameters(), lr=0.1)
    for step, x in enumerate(batches(steps + 1, seed=epoch)):
        notes.at(epoch, step)
        with run.step():
            learn(model, x, optimizer)
            if step == steps and within:
                die()
        if step == steps - 1 and not within:
            notes.committed()
            die()
        notes.committed()


@run(killed=(0,))
def killed_process(name: str, _stage: int) -> None:
    """Durability `process`: killed in the fourth step of the second epoch, whose journal is the first one's file."""
    with killed_run(name) as (run, model, notes):
        loop(run, model, notes, steps=5)
        until_sealed(name, 1)
        steps_and_die(run, model, notes, 1, 3, within=True)


@run(killed=(0,))
def killed_large(name: str, _stage: int) -> None:
    """Killed when large captures of a step are in the file, and their commit is not."""
    model, notes = Gives(), Notes(name)
    with probes.attach(model, spec({"p": PART}), out=name) as run, run.epoch(0):
        notes.outputs("p", model, "part")
        for step in range(4):
            notes.at(0, step)
            with run.step():
                model({"big": torch.arange(40_000.0) + step, "small": torch.arange(6) + step})
                if step == 3:
                    die()
            notes.committed()


@run(killed=(0,))
def killed_torn(name: str, _stage: int) -> None:
    """Killed behind its fourth step; the program that makes the corpus cuts the file within the record of that step."""
    with killed_run(name) as (run, model, notes):
        steps_and_die(run, model, notes, 0, 4, within=False)


@run(killed=(0,))
def killed_power(name: str, _stage: int) -> None:
    """Durability `power`: killed within a step."""
    with killed_run(name, durability="power") as (run, model, notes):
        loop(run, model, notes, steps=5)
        until_sealed(name, 1)
        steps_and_die(run, model, notes, 1, 3, within=True)


@run(killed=(0,))
def killed_power_torn(name: str, _stage: int) -> None:
    """Durability `power`, and the file is cut within the record of the last step."""
    with killed_run(name, durability="power") as (run, model, notes):
        steps_and_die(run, model, notes, 0, 4, within=False)


@run(ranks=2, killed=(0,))
def killed_ranks(name: str, _stage: int) -> None:
    """Two processes, killed after different steps of the second epoch."""
    rank = int(os.environ["RANK"])
    for run, model, notes in two_ranks(name):
        loop(run, model, notes)
        until_sealed(name, 1, f"ledger.rank-{rank:04d}.jsonl")
        steps_and_die(run, model, notes, 1, 2 + rank, within=True)


@run(killed=(0,))
def killed_segments(name: str, _stage: int) -> None:
    """Killed in the third segment of an epoch, of which two are sealed."""
    with killed_run(name, sinks={"captures": {"kind": "hdf5", "seal": {"steps": 2}}}) as (run, model, notes):
        run.timeline.begin_epoch(0)
        optimizer = SGD(model.parameters(), lr=0.1)
        for step, x in enumerate(batches(6)):
            notes.at(0, step)
            if step == 5:
                until_sealed(name, 2)
            with run.step():
                learn(model, x, optimizer)
                if step == 5:
                    die()
            notes.committed()


@run(killed=(0,))
def killed_at_once(name: str, _stage: int) -> None:
    """Killed within the first step, so that nothing was ever committed."""
    with killed_run(name) as (run, model, notes):
        steps_and_die(run, model, notes, 0, 0, within=True)


@run(failed=(0,))
def never_sealed(name: str, _stage: int) -> None:
    """Two epochs that came to their end, and a sealer that cannot start: both journals stay, complete."""
    with killed_run(name) as (run, model, notes):
        sys.executable = "/bin/false"
        loop(run, model, notes, epochs=2)


if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        os.environ["LOCAL_RANK"] = os.environ["RANK"]
    torch.set_num_threads(1)
    RUNS[sys.argv[1]].train(sys.argv[1], int(sys.argv[2]))
