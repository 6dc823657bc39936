"""Captures copied into memory: for the sinks until their step is committed, for a trigger until it fires."""

from __future__ import annotations

from ctypes import string_at
from typing import NamedTuple

from probes.signature import Descriptor


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
    """A writer that copies captures into memory; a subclass keeps the copies."""

    def __init__(self) -> None:
        self.descriptors: list[Descriptor] = []

    def descriptor(self, about: Descriptor) -> int:
        """A number for captures of this series, dtype and shape."""
        self.descriptors.append(about)
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
