"""Programs of many kinds that are started again and again in one directory, and what they themselves know of their captures.

A program notes the digest of every value that it lets a hook see, by hooks of its own and outside of the run directory, and every
step that was certainly committed. Whatever a run holds is compared with that: attempt by attempt, whether a reader would show it or not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.torture import shim

Place = tuple[int, int, str, int]  # attempt, epoch, phase, step


def spec(order: dict[str, Any]) -> dict[str, Any]:
    """The spec of a program."""
    probes: dict[str, Any] = {
        "small": {"hook": "forward", "modules": ["small"], "when": {"phases": ["train", "eval"]}},
        "back": {"hook": "backward", "modules": ["small"], "when": {"phases": ["train"]}},
    }
    if order["wide"]:
        probes["wide"] = {"hook": "forward", "modules": ["wide"], "when": {"phases": ["train", "eval"]}}
    sinks = {"sinks": {"files": {"kind": "hdf5", "seal": {"steps": order["segment"]}}}} if order["segment"] else {}
    return {"version": 1, "name": "program", "durability": order["durability"], "probes": probes, **sinks}


class Truth:
    """What the program knows: one line for each step before it can be committed, and one when it certainly is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.values: dict[str, str] = {}

    def see(self, series: str, value: Any) -> None:
        """Note a value of the open step."""
        self.values[series] = blake2b(value.detach().numpy().tobytes()).hexdigest()[:16]

    def step(self, *place: Any) -> None:
        """Note all values of a step, whose body is about to end."""
        os.write(self._file, json.dumps(["step", *place, self.values]).encode() + b"\n")
        self.values = {}

    def kept(self, *place: Any) -> None:
        """Note that a step was committed."""
        os.write(self._file, json.dumps(["kept", *place]).encode() + b"\n")


def model(truth: Truth, wide: int) -> Any:
    """A model whose values the program takes down before any hook of the run."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.wide = nn.Identity(), nn.Identity()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if wide:
                self.wide(x.double().mean() + torch.arange(wide, dtype=torch.float64))
            return self.small(x * self.weight)

    def small(_module: Any, _args: Any, output: Any) -> None:
        truth.see("small/small/output", output)
        if output.requires_grad:
            output.register_hook(lambda grad: truth.see("back/small/grad_output", grad))

    net = Net()
    net.small.register_forward_hook(small)
    net.wide.register_forward_hook(lambda _module, _args, output: truth.see("wide/wide/output", output))
    return net


def run(order: dict[str, Any]) -> int:
    """One start of a program, and what it exits with.

    Args:
        order: `out`, `truth`, `start` (a number of its own for each start), `style`, `context` (how workers start), `epochs`, `steps`,
            `durability`, `segment`, `wide`, and optionally `fault`, `sealer_fault`, `locks` (False for a file system without).
    """
    from probes.errors import ProbesError
    from probes.run_directory import sealer_process
    from probes.run_directory.owner import claim, heartbeat

    sealer_process.PATIENCE = 3.0
    if not order["locks"]:
        os.environ["TORTURE_NO_LOCKS"] = "1"
        heartbeat.BEAT_SECONDS = claim.BEAT_SECONDS = 0.2
        claim.PATIENCE = 3.0
    os.environ[shim.VARIABLE] = order.get("sealer_fault", "")
    shim.arm(order.get("fault", ""))
    truth = Truth(Path(order["truth"]))
    try:
        return _script(order) if order["style"] == "script" else _loop(order, truth)
    except ProbesError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code


def batch(start: int, epoch: int, step: int) -> Any:
    """The input of a step, different for each start."""
    import torch

    return torch.arange(128, dtype=torch.float32).reshape(8, 16) % 97 + (start * 10_000 + epoch * 1000 + step)


def train(net: Any, x: Any) -> None:
    """Forward and backward, with a gradient that says which step it is of."""
    out = net(x)
    (out * x).sum().backward()
    net.weight.grad = None


def _loop(order: dict[str, Any], truth: Truth) -> int:
    import torch

    import probes

    net = model(truth, order["wide"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    start, steps = order["start"], order["steps"]
    with probes.attach(net, spec(order), out=order["out"], resume=True) as run:
        attempt = run.past.attempt

        def one(epoch: int, step: int) -> None:
            train(net, batch(start, epoch, step))
            optimizer.step()
            truth.step(attempt, epoch, "train", step)

        def kept(epoch: int, phase: str, step: int) -> None:
            if not run.engine.failures.stopped:
                truth.kept(attempt, epoch, phase, step)

        for epoch in run.epochs(order["epochs"]):
            if epoch and order["recycles"]:
                _until_recycled(Path(order["out"]))
            if order["style"] == "step":
                for step in range(steps):
                    with run.step():
                        one(epoch, step)
                    kept(epoch, "train", step)
                continue
            for step in run.steps(_loader(order) if order["style"] == "workers" else range(steps)):
                if step:
                    kept(epoch, "train", step - 1)
                one(epoch, step)
            kept(epoch, "train", steps - 1)
            if order["style"] == "phase":
                net.eval()
                with run.phase("eval"), torch.no_grad():
                    for step in run.steps(range(steps // 2)):
                        net(batch(start, epoch, 500 + step))
                        truth.step(attempt, epoch, "eval", step)
                net.train()
                for step in range(steps // 2):
                    kept(epoch, "eval", step)
    return 0


def _until_recycled(out: Path) -> None:
    """Wait until the journal of an earlier epoch can be written over, as in a training whose epochs are longer than sealing takes."""
    deadline = monotonic() + 1.0
    while not (out / "spare.journal").exists() and monotonic() < deadline:
        sleep(0.005)


def _loader(order: dict[str, Any]) -> Any:
    """The steps as a worker process gives them; one that was forked has every descriptor of the training, and outlives its kill."""
    from torch.utils.data import DataLoader

    return DataLoader(range(order["steps"]), batch_size=None, num_workers=1, multiprocessing_context=order["context"])


SCRIPT = """
import json, os, sys
import torch
from torch.utils.data import DataLoader
from pathlib import Path
from probes.runner.run import _ATTACHED
from tests.torture.program import Truth, batch, model, train

order = json.loads(sys.argv[1])
truth = Truth(Path(order["truth"]))
net = model(truth, order["wide"])
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
loader = DataLoader(range(order["steps"]), batch_size=None)
before = None
first = json.loads(os.environ["FIRST"])
for epoch in range(first, order["epochs"]):
    for step, _ in enumerate(loader):
        train(net, batch(order["start"], epoch, step))
        optimizer.step()
        (run,) = [run for run in _ATTACHED if run._entered]
        if step > 1 and not run.engine.failures.stopped:
            truth.kept(*before)
        truth.step(run.past.attempt, epoch, "train", step)
        before = (run.past.attempt, epoch, "train", step - 1)
"""


def _script(order: dict[str, Any]) -> int:
    """The same under `probes run`; the script goes on with the epoch that its own checkpoint would say."""
    from probes.script.program import program_of
    from probes.script.progress import Progress
    from probes.script.run_request import RunRequest
    from probes.script.session import Session
    from probes.spec import load_spec

    out = Path(order["out"])
    path = out.parent / "train.py"
    path.write_text(SCRIPT)
    first = 0
    if out.is_dir():
        whole = {epoch for _, epoch, _, step in read(Path(order["truth"]))[1] if step == order["steps"] - 3}
        first = max(0, min(set(range(order["epochs"])) - whole, default=order["epochs"]) - 1)
    os.environ["FIRST"] = str(first)
    target = program_of("run", (str(path), json.dumps(order)), "spec")
    request = RunRequest(load_spec(spec(order)), str(out), {}, resume=True, first_epoch=first)
    outcome = Session(request, Progress(quiet=True)).run(target)
    if outcome.failure is not None:
        raise outcome.failure
    return int(outcome.code or 0)


def read(path: Path) -> tuple[dict[Place, list[dict[str, str]]], list[Place]]:
    """What the program has noted: the values of each step, and the steps that were committed."""
    steps: dict[Place, list[dict[str, str]]] = {}
    kept: list[Place] = []
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    for word, attempt, epoch, phase, step, *values in map(json.loads, lines):
        place = (attempt, epoch, phase, step)
        if word == "step":
            steps.setdefault(place, []).append(values[0])
        else:
            kept.append(place)
    return steps, kept


def stored(out: Path) -> Iterator[tuple[Place, str, str]]:
    """Everything in a run directory: the place of each capture, its series, its digest; of every attempt."""
    from probes.errors import FileRefused
    from probes.reader.run import open as open_run

    for attempt in open_run(out).attempts:
        for name in attempt.files:
            try:
                opened = open_run(out / name).series
            except FileRefused as refused:
                if refused.code != "journal-empty":  # a kill has left it before anything could be committed
                    raise
                continue
            for series in opened:
                key = series.key
                for capture in series:
                    clock = capture.clock
                    place = (attempt.attempt, int(clock.epoch), key.phase, int(clock.step))
                    yield place, f"{key.probe}/{key.target}/{key.leaf}", blake2b(capture.value.tobytes()).hexdigest()[:16]


def compare(order: dict[str, Any]) -> dict[str, Any]:
    """What a run holds, against what its program knows."""
    from probes.errors import FileRefused, StorageError
    from probes.reader.run import open as open_run

    out = Path(order["out"])
    truth, kept = read(Path(order["truth"]))
    found: dict[Place, dict[str, list[str]]] = {}
    problems: list[str] = []
    try:
        for place, series, digest in stored(out) if out.exists() else ():
            found.setdefault(place, {}).setdefault(series, []).append(digest)
        states = [(one.attempt, one.epoch) for one in open_run(out).attempts if one.state == "complete"] if out.exists() else []
    except (StorageError, FileRefused) as error:
        if kept:
            problems.append(f"cannot be read: {error}")
        states = []
    wrong = doubled = 0
    for place, series_found in found.items():
        known = truth.get(place, [])
        values = {series: digests[0] for series, digests in series_found.items()}
        doubled += sum(len(digests) > 1 for digests in series_found.values())
        if values not in known:
            partial = any(values.items() <= one.items() for one in known)
            wrong += 1
            problems.append(f"{place} is {'stored in part' if partial else 'not what was captured'}: {sorted(values)}")
    lost = [place for place in kept if place not in found]
    if lost:
        files = sorted(path.name for path in out.iterdir()) if out.exists() else []
        problems.append(f"lost {lost[:4]} of {len(kept)}; there are {files}")
    if doubled:
        problems.append(f"{doubled} captures are there twice")
    for attempt, epoch in states:
        steps = {step for one, other, phase, step in found if (one, other, phase) == (attempt, epoch, "train")}
        if steps != set(range(order["steps"])):
            problems.append(f"epoch {epoch} of attempt {attempt} is called complete and has the steps {sorted(steps)}")
    captures = sum(len(next(iter(truth[place]))) for place in kept if place in truth)
    return {"acknowledged": captures, "lost": len(lost), "wrong": wrong + doubled, "problems": problems}
