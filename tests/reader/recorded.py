"""Runs recorded through the real journal and sealed by the real sealer, without torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probes.clock import SeriesKey
from probes.journal.writer import Journal
from probes.run_directory.file_name import Stem
from probes.run_directory.seal import seal
from probes.signature import Descriptor

KEY = SeriesKey("acts", "fc1", "output", "train")


@dataclass
class Recording:
    """One epoch; `take` captures, then `sealed` or `left`."""

    directory: Path
    epoch: int = 0
    attempt: int = 1
    rank: int | None = None
    segment: int = 0
    head: dict[str, Any] = field(default_factory=dict)
    steps: dict[tuple[str, int], list[tuple[Any, ...]]] = field(default_factory=dict)
    annexes: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def take(
        self,
        value: np.ndarray,
        *,
        key: SeriesKey = KEY,
        dtype: str | None = None,
        step: int = 0,
        microstep: int = 0,
        call: int = 0,
        backward: int = 0,
        dims: tuple[str, ...] | None = None,
        coords: dict[str, Any] | None = None,
        attrs: dict[str, Any] | None = None,
        shape: tuple[int, ...] | None = None,
        epoch: int | None = None,
    ) -> "Recording":
        bits = np.ascontiguousarray(value).reshape(value.shape)
        about = (key, dtype or value.dtype.name, value.shape if shape is None else shape, dims, coords or {}, attrs or {}, epoch)
        self.steps.setdefault((key.phase, step), []).append((about, (step, microstep, call, backward), bits))
        return self

    def ids(self, step: int, ids: list[Any], phase: str = "train") -> "Recording":
        self.annexes[phase, step] = {"ids": ids}
        return self

    def sealed(self, complete: bool = True, compression: str = "none") -> Path:
        path = self.left(complete=complete, ended=True)
        return self.directory / seal(path, self.directory, {"compression": compression}).file

    def left(self, complete: bool = True, ended: bool = False) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{Stem(self.epoch, self.attempt, self.segment, self.rank)}.journal"
        head = {
            "run_id": "r",
            "epoch": self.epoch,
            "attempt": self.attempt,
            "segment": self.segment,
            "rank": self.rank or 0,
            "spec": "version: 1\n",
        }
        head |= {"manifest": {"run_id": "r"}, "global_step_start": {"train": 100 * self.epoch}} | self.head
        journal = Journal.create(path, head)
        known: dict[str, int] = {}
        for (phase, step), captures in self.steps.items():
            for about, clock, bits in captures:
                if repr(about) not in known:
                    known[repr(about)] = journal.descriptor(Descriptor(*about))
                journal.add(known[repr(about)], *clock, bits.ctypes.data, bits.nbytes)
            journal.commit(phase, step, 100 * self.epoch + step, self.annexes.get((phase, step)))
        if ended:
            journal.end(complete, "" if complete else "it was stopped", {})
        else:
            journal.close()
        return path


def counted(directory: Path, epochs: int = 3, steps: int = 4, **options: Any) -> Path:
    """A run whose value at (epoch, step) is filled with 10 * epoch + step."""
    for epoch in range(epochs):
        recording = Recording(directory, epoch)
        for step in range(steps):
            recording.take(np.full((2, 3), 10 * epoch + step, "<f4"), step=step, **options)
        recording.sealed()
    return directory
