"""A disk that loses power: what was synced stays, and of everything else any part may have come to stand on it, or not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.calls import Call
from tests.torture.shim import NOTE, Calls

PIECES = (512, 4096)
KEEPS = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)


@dataclass
class File:
    """The content of a file, on the device and in the page cache.

    Attributes:
        durable: what was synced.
        cached: what the processes see.
        dirty: (start, stop) of what was written since.
    """

    durable: bytearray = field(default_factory=bytearray)
    cached: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, int]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        """Write to the page cache."""
        offset = len(self.cached) if offset < 0 else offset
        self.cached += bytes(max(offset + len(data) - len(self.cached), 0))
        self.cached[offset : offset + len(data)] = data
        self.dirty.append((offset, offset + len(data)))

    def truncate(self, size: int) -> None:
        """Cut or extend what is in the page cache."""
        del self.cached[size:]
        self.cached += bytes(size - len(self.cached))
        self.dirty = [(start, min(stop, size)) for start, stop in self.dirty if start < size]

    def sync(self) -> None:
        """Bring all to the device."""
        self.durable[:] = self.cached
        self.dirty.clear()

    def after_power_loss(self, chance: random.Random) -> bytes:
        """The device with each unsynced piece either old or new, and any length that could have become durable."""
        piece, keep = chance.choice(PIECES), chance.choice(KEEPS)
        image = self.durable + bytes(max(len(self.cached) - len(self.durable), 0))
        size = chance.choice([len(self.durable), len(self.cached)])
        for at in sorted({at for start, stop in self.dirty for at in range(start // piece, -(-stop // piece))}):
            if chance.random() < keep:
                whole = self.cached[at * piece : (at + 1) * piece]
                image[at * piece : at * piece + len(whole)] = whole
                size = max(size, at * piece + len(whole))
        return bytes(image[:size])


@dataclass(frozen=True)
class Renaming:
    """A change of the directory: names that come, each with its file, and one that goes."""

    comes: str = ""
    file: File | None = None
    goes: str = ""

    def apply(self, names: dict[str, File]) -> None:
        """Make the change."""
        names.pop(self.goes, None)
        if self.file is not None:
            names[self.comes] = self.file


class Disk:
    """One directory on a device, replayed call by call."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: dict[str, File] = {}
        self._cached: dict[str, File] = {}
        self._pending: list[Renaming] = []

    def replay(self, call: Call) -> None:
        """Do what a process did."""
        if call.failed or call.kind in (NOTE, Calls.MKDIR, Calls.RESERVE):  # the last changes no byte
            return
        if call.kind == Calls.SYNC and Path(call.path) == self._root:
            for renaming in self._pending:
                renaming.apply(self._durable)
            self._pending.clear()
        elif call.kind in (Calls.CREATE, Calls.LINK, Calls.RENAME, Calls.UNLINK):
            self._rename(call)
        elif (file := self._cached.get(self._name(call.path))) is not None:
            self._change(file, call)

    def _change(self, file: File, call: Call) -> None:
        if call.kind == Calls.WRITE:
            file.write(call.offset, call.data)
        elif call.kind == Calls.TRUNCATE:
            file.truncate(call.offset)
        else:
            file.sync()

    def _rename(self, call: Call) -> None:
        name, other = self._name(call.path), self._name(call.other)
        match call.kind:
            case Calls.CREATE:
                change = Renaming(comes=name, file=File())
            case Calls.LINK:
                change = Renaming(comes=other, file=self._cached[name])
            case Calls.RENAME:
                change = Renaming(comes=other, file=self._cached[name], goes=name)
            case _:
                change = Renaming(goes=name)
        change.apply(self._cached)
        self._pending.append(change)

    def _name(self, path: str) -> str:
        return Path(path).name

    def after_power_loss(self, chance: random.Random, directory: Path) -> None:
        """Write into an empty directory what could stand on the device: names in order or not, each file as it may be."""
        names = dict(self._durable)
        ordered, keep = chance.random() < 0.7, chance.choice(KEEPS)
        stop = chance.randint(0, len(self._pending))
        for index, renaming in enumerate(self._pending):
            if index < stop if ordered else chance.random() < keep:
                renaming.apply(names)
        images: dict[int, bytes] = {}
        for name, file in names.items():
            if id(file) not in images:
                images[id(file)] = file.after_power_loss(chance)
            (directory / name).write_bytes(images[id(file)])
