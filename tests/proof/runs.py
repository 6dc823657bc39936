"""Small sealed runs for the tests of proof: real journals, real HDF5, a real manifest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.random  # a manifest lists the state of this generator only if the module was imported
import torch
from numpy.typing import NDArray
from torch import nn

from probes.clock import SeriesKey
from probes.journal.writer import Journal
from probes.provenance.collect import Script, collect
from probes.run_directory.file_name import CONTINUED, manifest_name
from probes.run_directory.ledger import Ledger
from probes.run_directory.manifest import Manifest, identity
from probes.run_directory.seal import seal
from probes.signature import Descriptor
from tests.proof.origin import RESOLVED, SPEC, loaded, tree


class One(NamedTuple):
    """A capture to be written."""

    key: SeriesKey
    dtype: str
    bits: NDArray[Any]
    step: int
    call: int = 0
    dims: tuple[str, ...] | None = None


Change = Callable[[One, int], "One | None"]


def captures(epoch: int) -> Iterator[One]:
    """What an epoch captures: small, large, ragged, concatenated and bfloat16 series, and one of eval."""
    made = np.random.default_rng(epoch)
    for step in range(4):
        for call in range(2):
            yield One(
                SeriesKey("acts", "fc1", "output", "train"), "float32", made.standard_normal((3, 2), "f4"), step, call, ("batch", "unit")
            )
        yield One(SeriesKey("big", "fc1", "output", "train"), "float32", made.standard_normal(20_000, "f4"), step)
        yield One(SeriesKey("acts", "fc2", "output", "train"), "bfloat16", made.integers(0, 1 << 15, 5).astype("<u2"), step)
        yield One(SeriesKey("grads", "fc1.weight", "grad", "train"), "float64", made.standard_normal((2 + step % 2, 3)), step)
        yield One(SeriesKey("rag", "", "output.0", "train"), "int64", made.integers(0, 9, (2, 1 + step)), step)
    yield One(SeriesKey("acts", "fc1", "output", "eval"), "float32", made.standard_normal((3, 2), "f4"), 0)


def small(epoch: int) -> Iterator[One]:
    """A few captures, for tests that go through every byte."""
    made = np.random.default_rng(epoch)
    for step in range(2):
        yield One(SeriesKey("acts", "fc1", "output", "train"), "float32", made.standard_normal((2,), "f4"), step)


@cache
def manifest() -> Manifest:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("fc1", nn.Linear(3, 4))
    model.add_module("fc2", nn.Linear(4, 2))
    found = collect({"": tree(model)}, loaded(), run_id="r", script=Script(None, None, ("--lr", "0.1"))).manifest
    return replaced(found, code=found.code.model_copy(update={"git": None, "modules": None, "sources": None}))


def replaced(origin: Manifest, **changes: Any) -> Manifest:
    """A manifest with some records changed, and the identity that follows."""
    changed = origin.model_copy(update=changes)
    return changed.model_copy(update={"identity": identity(changed)})


def of_launch(origin: Manifest, rank: int | None, world: int) -> Manifest:
    """The manifest of one rank of a launch, or of the only process."""
    environment = origin.environment.model_copy(update={"world": 1 if rank is None else world})
    return replaced(origin, rank=rank or 0, environment=environment)


def write_run(
    path: Path,
    *,
    epochs: int = 2,
    source: Callable[[int], Iterator[One]] = captures,
    change: Change = lambda one, epoch: one,
    origin: Manifest | None = None,
    compression: str = "none",
    gaps: bool = False,
    complete: bool = True,
    seals: bool = True,
    attempt: int = 1,
    first: int = 0,
    rank: int | None = None,
    world: int = 2,
    segment: int = 0,
    first_step: int = 0,
    closing: Mapping[str, Any] | None = None,
) -> str:
    """Write and seal a run, or the part of one rank; returns the head of its ledger."""
    path.mkdir(parents=True, exist_ok=True)
    found = of_launch(origin or manifest(), rank, world)
    (path / manifest_name(attempt, rank)).write_text(found.text(), encoding="utf-8")
    (path / "spec.yaml").write_bytes(SPEC)
    for epoch in range(first, epochs):
        suffix = f".a{attempt}" if attempt > 1 else ""
        of_rank = "" if rank is None else f".rank-{rank:04d}"
        cut = f".s{segment:04d}" if segment else ""
        name = path / f"epoch-{epoch:04d}{suffix}{cut}{of_rank}.journal"
        ones = [changed for one in source(epoch) if (changed := change(one, epoch))]
        _journal(name, epoch, attempt, segment, first_step, ones, found, gaps, complete, closing or {})
        if seals:
            seal(name, path, {"compression": compression})
    ledger = "ledger.jsonl" if rank is None else f"ledger.rank-{rank:04d}.jsonl"
    return Ledger(path / ledger).head if seals else ""


def _journal(
    path: Path,
    epoch: int,
    attempt: int,
    segment: int,
    first_step: int,
    ones: list[One],
    origin: Manifest,
    gaps: bool,
    complete: bool,
    closing: Mapping[str, Any],
) -> None:
    head = {
        "run_id": origin.run_id,
        "epoch": epoch,
        "attempt": attempt,
        "rank": origin.rank,
        "global_step_start": {"train": 4 * epoch, "eval": epoch},
    }
    head |= {"manifest": json.loads(origin.text()), "spec": SPEC.decode(), "resolved": RESOLVED.decode()}
    head |= {name: number for name, number in (("segment", segment), ("first_step", first_step)) if number}
    journal = Journal.create(path, head)
    numbers: dict[Any, int] = {}
    steps = sorted({(one.key.phase != "train", one.key.phase, one.step) for one in ones})
    for _, phase, step in steps:
        for one in ones:
            if (one.key.phase, one.step) == (phase, step):
                _add(journal, numbers, one)
        annex: dict[str, Any] = {"ids": [step, step + 1]}
        if gaps and step == 1:
            annex["gaps"] = [["acts", "fc9", "output", phase, "never called", 1]]
        journal.commit(phase, step, (4 * epoch if phase == "train" else epoch) + step, annex)
    reason = CONTINUED if segment else "interrupted"
    journal.end(complete, "" if complete else reason, {"steps": {"train": 4}, **closing})
    journal.close()


def _add(journal: Journal, numbers: dict[Any, int], one: One) -> None:
    name = (one.key, one.dtype, one.bits.shape)
    if name not in numbers:
        numbers[name] = journal.descriptor(Descriptor(one.key, one.dtype, one.bits.shape, one.dims, {}, {"hook": "forward"}))
    bits = np.ascontiguousarray(one.bits)
    journal.add(numbers[name], one.step, 0, one.call, 0, bits.ctypes.data, bits.nbytes)
