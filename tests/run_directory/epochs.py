"""Journals of made-up epochs, to be sealed in tests."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from probes.capture_file.read import SealedFile
from probes.capture_file.series_name import SeriesAddress
from probes.clock import SeriesKey
from probes.journal.writer import Journal
from probes.run_directory.seal import seal
from probes.signature import DTYPES, Descriptor

MANIFEST = {"identity": {"spec": "aa", "structure": "bb", "weights": None, "code": "cc", "environment": "dd"}}
HEAD = {
    "run_id": "20261121T000000Z-abcd",
    "epoch": 3,
    "attempt": 1,
    "rank": 0,
    "global_step_start": {"train": 100, "eval": 7},
    "manifest": MANIFEST,
    "spec": "version: 1\n",
    "resolved": '{"version":1}',
}
CLOSING = {"steps": {"train": 4}, "accounts": []}
ACTS = SeriesKey("acts", "features.0", "output", "train")


@dataclass(frozen=True)
class Shot:
    """One capture to be written.

    Attributes:
        data: its bytes; random ones, the same for the same shot, where None.
    """

    key: SeriesKey = ACTS
    dtype: str = "float32"
    shape: tuple[int, ...] = (2, 3)
    step: int = 0
    microstep: int = 0
    call: int = 0
    backward: int = 0
    dims: tuple[str, ...] | None = None
    coords: dict[str, Any] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    epoch: int | None = None
    data: bytes | None = None

    @property
    def payload(self) -> bytes:
        size = DTYPES[self.dtype].itemsize * prod(self.shape)
        seed = repr((self.key, self.dtype, self.shape, self.step, self.microstep, self.call, self.backward))
        return random.Random(seed).randbytes(size) if self.data is None else self.data


def begin(directory: Path, name: str = "epoch-0003.journal", head: dict[str, Any] | None = None, **options: Any) -> Journal:
    return Journal.create(directory / name, {**HEAD, **(head or {})}, **options)


def fill(journal: Journal, shots: Iterable[Shot], annexes: dict[int, dict[str, Any]] | None = None) -> None:
    """Write shots, one commit for each run of the same phase and step."""
    known: dict[str, int] = {}
    last: tuple[str, int] | None = None
    for shot in shots:
        now = (shot.key.phase, shot.step)
        if last not in (None, now) and shot.epoch is None:
            _commit(journal, last, annexes)
        name = repr((shot.key, shot.dtype, shot.shape, shot.dims, shot.coords, shot.epoch))
        if name not in known:
            known[name] = journal.descriptor(Descriptor(shot.key, shot.dtype, shot.shape, shot.dims, shot.coords, shot.attrs, shot.epoch))
        payload = shot.payload
        memory = ctypes.create_string_buffer(payload, len(payload) + 1)
        address = ctypes.addressof(memory) if payload else 0
        journal.add(known[name], shot.step, shot.microstep, shot.call, shot.backward, address, len(payload))
        last = now if shot.epoch is None else last
    _commit(journal, last, annexes)


def _commit(journal: Journal, at: tuple[str, int] | None, annexes: dict[int, dict[str, Any]] | None) -> None:
    if at is not None:
        phase, step = at
        journal.commit(phase, step, HEAD["global_step_start"].get(phase, 0) + step, (annexes or {}).get(step))  # type: ignore[attr-defined]  # nested plain data


def write(directory: Path, shots: Iterable[Shot], *, annexes: dict[int, dict[str, Any]] | None = None, **options: Any) -> Path:
    """A whole journal of a complete epoch."""
    journal = begin(directory, **options)
    fill(journal, shots, annexes)
    journal.end(True, "", CLOSING)
    return journal.path


def sealed(directory: Path, shots: Iterable[Shot], compression: str = "none", **options: Any) -> Path:
    """The sealed file of a complete epoch."""
    journal = write(directory, shots, **options)
    return directory / seal(journal, directory, {"compression": compression}).file


def stored(path: Path, key: SeriesKey = ACTS, dtype: str = "") -> list[bytes]:
    """The bytes of each capture of a series, in the order of the file, through our reader."""
    part = SealedFile(path).part(SeriesAddress(key, dtype))
    return [part.elements(index, index + 1).tobytes() for index in range(len(part.clocks))]


def payloads(shots: Sequence[Shot]) -> list[bytes]:
    return [shot.payload for shot in shots]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def zoo() -> list[Shot]:
    """An epoch with a bit of everything."""
    shots = []
    for step in range(4):
        batch = 3 if step == 3 else 8
        shots += [
            Shot(key=ACTS, shape=(4, 5), step=step, dims=("row", "step"), attrs={"hook": "forward", "transforms": [{"kind": "cast"}]}),
            Shot(key=ACTS._replace(target="fc"), shape=(batch, 6), step=step, dims=("batch", "channel")),
            Shot(key=ACTS._replace(target="attention"), shape=(2, 3 + step), step=step),
            Shot(key=ACTS._replace(target="loss"), shape=(), step=step, dtype="float64"),
            Shot(key=ACTS._replace(target="nothing"), shape=(0, 3), step=step),
            Shot(key=ACTS._replace(target="half"), shape=(3,), step=step, dtype="bfloat16"),
            Shot(key=ACTS._replace(target="wave"), shape=(3, 3), step=step, dtype="complex64", dims=("x", "x")),
            Shot(key=ACTS._replace(target="mixed"), shape=(3,), step=step, dtype="float32" if step % 2 else "float16"),
            Shot(key=ACTS._replace(target="shared"), shape=(2,), step=step, call=0),
            Shot(key=ACTS._replace(target="shared"), shape=(2,), step=step, call=1),
            Shot(key=ACTS._replace(target="stats"), shape=(2,), step=step, dims=("stat",), coords={"stat": ["mean", "std"]}),
            Shot(key=ACTS._replace(target="edges"), shape=(2,), step=step, dims=("edge",), coords={"edge": [0.5, 1.0]}),
        ]
    return shots + [Shot(key=ACTS._replace(phase="eval"), shape=(4, 5), step=step) for step in range(2)]
