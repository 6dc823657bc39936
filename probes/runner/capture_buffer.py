"""Captures copied into memory: for the sinks until their step is committed, for a trigger until it fires."""

from __future__ import annotations

from ctypes import string_at
from typing import NamedTuple

from probes.clock import SeriesKey
from probes.signature import Coord


class Descriptor(NamedTuple):
    """What captures of one series, dtype and shape have in common; `epoch` is None where it is the open one."""

    key: SeriesKey
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...] | None
    coords: dict[str, Coord]
    attrs: dict[str, object]
    epoch: int | None


class BufferedCapture(NamedTuple):
    """A copy of one capture, with its place in the run."""

    descriptor: Descriptor
    step: int
    microstep: int
    call: int
    backward: int
    flags: int
    payload: bytes


class BufferingWriter:
    """A writer of captures that copies them into memory; a subclass keeps the copies."""

    def __init__(self) -> None:
        self.descriptors: list[Descriptor] = []

    def descriptor(
        self,
        key: SeriesKey,
        dtype: str,
        shape: tuple[int, ...],
        dims: tuple[str, ...] | None,
        coords: dict[str, Coord],
        attrs: dict[str, object],
        epoch: int | None = None,
    ) -> int:
        """A number for captures of this series, dtype and shape."""
        self.descriptors.append(Descriptor(key, dtype, shape, dims, coords, attrs, epoch))
        return len(self.descriptors) - 1

    def add(self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int = 0) -> None:
        """Copy `nbytes` bytes at `address` before returning."""
        raise NotImplementedError

    def copied(
        self, descriptor: int, step: int, microstep: int, call: int, backward: int, address: int, nbytes: int, flags: int
    ) -> BufferedCapture:
        """A capture with a copy of its bytes."""
        payload = string_at(address, nbytes) if nbytes else b""
        return BufferedCapture(self.descriptors[descriptor], step, microstep, call, backward, flags, payload)
