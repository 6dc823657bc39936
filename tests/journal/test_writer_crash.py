"""The state of a journal after a kill of its process, or a power loss."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from probes.errors import FileRefused
from probes.journal.record_writer import RawFile
from probes.journal.scan import scan
from tests.journal.journals import Taker, read, steps

KILLS = 20
SIZES = (10, 700, 5000, 140_000, 200_000)

# Forks one writer for each path it is given, so that the start of the interpreter is paid once.
NURSERY = """
import os, sys
from pathlib import Path
from tests.journal.journals import Taker
from tests.journal.test_writer_crash import payloads_of

for line in sys.stdin:
    name, seed, durability, spare = line.split()
    pid = os.fork()
    if pid == 0:
        taker = Taker(Path(name), buffer_bytes=16384, durability=durability, spare=Path(spare))
        for step in range(100_000):
            for payload in payloads_of(int(seed), step):
                taker.add(payload)
            taker.commit()
            os.write(1, b"%d\\n" % step)
    os.write(1, b"pid %d\\n" % pid)
    os.waitpid(pid, 0)
    os.write(1, b"dead\\n")
"""


def payloads_of(seed: int, step: int) -> list[bytes]:
    """What the writer with this seed captures in a step."""
    chance = random.Random(seed * 1_000_003 + step)
    return [chance.randbytes(1) * chance.choice(SIZES) for _ in range(chance.randrange(1, 6))]


def kill_one(nursery: subprocess.Popen[str], path: Path, seed: int, spare: Path) -> int:
    """Let a writer run for a while, kill it, and return how many steps it had acknowledged."""
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(f"{path} {seed} {'power' if seed % 5 == 0 else 'process'} {spare}\n")
    nursery.stdin.flush()
    acknowledged = pid = 0
    deadline = 0.0
    for line in nursery.stdout:
        if line.startswith("dead"):
            return acknowledged
        if line.startswith("pid"):
            pid = int(line.split()[1])
        else:
            acknowledged = int(line) + 1
            deadline = deadline or time.monotonic() + random.Random(seed).uniform(0, 0.05)
        if pid and deadline and time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            pid = 0
    raise AssertionError("the nursery ended")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_writer_loses_no_acknowledged_step(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    spare = tmp_path / "spare.journal"
    total = 0
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
    ) as nursery:
        for seed in range(KILLS):
            path = tmp_path / f"{seed}.journal"
            acknowledged = kill_one(nursery, path, seed, spare)
            found, payloads = read(path)
            assert len(payloads) >= acknowledged > 0
            assert payloads == [payloads_of(seed, step) for step in range(len(payloads))]
            assert found.state in ("open", "torn")
            total += acknowledged
            path.rename(spare)
    assert total > KILLS


class _Recorder(RawFile):
    """A file that notes everything it is asked to do."""

    events: list[tuple[str, Any, Any]]

    def write(self, parts, offset):  # type: ignore[no-untyped-def]  # those of RawFile
        self.events.append(("write", offset, b"".join(parts)))
        return super().write(parts, offset)

    def sync(self) -> None:
        self.events.append(("sync", 0, 0))
        super().sync()


class _Disk:
    """The bytes on the device, and those in the page cache only."""

    def __init__(self, durable: bytes) -> None:
        self.durable = bytearray(durable)
        self.cached = bytearray(durable)
        self.dirty: list[tuple[int, int]] = []

    def replay(self, event: tuple[str, Any, Any]) -> None:
        kind, offset, data = event
        if kind == "write":
            self.cached += bytes(max(offset + len(data) - len(self.cached), 0))
            self.cached[offset : offset + len(data)] = data
            self.dirty.append((offset, offset + len(data)))
        elif kind == "sync":
            self.durable[:] = self.cached
            self.dirty.clear()

    def after_power_loss(self, chance: random.Random, piece: int) -> bytes:
        """The device with each unsynced piece either old or new, and any length that could have become durable."""
        image = self.durable + bytes(len(self.cached) - len(self.durable))
        size = chance.choice([len(self.durable), len(self.cached)])
        keep = chance.choice([0.1, 0.5, 0.9, 0.99])
        touched = {at for start, stop in self.dirty for at in range(start // piece, -(-stop // piece))}
        for at in sorted(touched):
            if chance.random() < keep:
                image[at * piece : (at + 1) * piece] = self.cached[at * piece : (at + 1) * piece]
                size = max(size, min((at + 1) * piece, len(self.cached)))
        return bytes(image[:size])


def record(path: Path, durability: str, spare: Path | None) -> tuple[list[tuple[str, Any, Any]], list[list[bytes]], int]:
    """What a writer asked of its file, what it captured, and where in the events the journal had its name."""
    _Recorder.events = []
    taker = Taker(path, durability=durability, buffer_bytes=4096, spare=spare, opener=_Recorder)
    named = len(_Recorder.events)
    for step in range(12):
        for payload in payloads_of(77, step):
            taker.add(payload[:150_000])
        if step == 5:
            taker.journal.abort()
            taker.step = []
        taker.commit()
        _Recorder.events.append(("ack", step, 0))
    taker.journal.end(True, "done", {})
    return _Recorder.events, taker.acknowledged, named


@pytest.mark.parametrize("trials", [75, pytest.param(2500, marks=pytest.mark.torture)])
@pytest.mark.parametrize("recycled", [False, True])
@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_power_loss_loses_no_guaranteed_step_and_adds_none(tmp_path: Path, durability: str, recycled: bool, trials: int) -> None:
    spare = tmp_path / "spare.journal"
    if recycled:
        record(spare, durability, None)
    former = spare.read_bytes() if recycled else b""
    events, captured, named = record(tmp_path / "a.journal", durability, spare if recycled else None)
    crashed = tmp_path / "crashed"
    chance = random.Random(f"{durability} {recycled}")
    for trial in range(trials):
        stop = chance.randrange(named, len(events) + 1)
        disk = _Disk(former)
        for event in events[:stop]:
            disk.replay(event)
        crashed.write_bytes(disk.after_power_loss(chance, chance.choice([512, 4096])))
        promised = sum(event[0] == "ack" for event in events[:stop]) if durability == "power" else 0
        try:
            found = scan(crashed, boot="after the power loss")
        except FileRefused:
            assert durability == "process", trial
            assert not recycled, trial
            continue
        payloads = steps(found, crashed.read_bytes())
        assert len(payloads) >= promised, trial
        if durability == "power":
            assert payloads == captured[: len(payloads)], trial
        remaining = iter(captured)  # with `process` a step whose bytes are damaged is left out, and those after it stay
        assert all(step in remaining for step in payloads), trial


@pytest.mark.parametrize("durability", ["process", "power"])
def test_once_ended_a_journal_survives_a_power_loss(tmp_path: Path, durability: str) -> None:
    events, captured, _ = record(tmp_path / "a.journal", durability, None)
    disk = _Disk(b"")
    for event in events:
        disk.replay(event)
    (tmp_path / "crashed").write_bytes(disk.after_power_loss(random.Random(3), 512))
    found, payloads = read(tmp_path / "crashed", boot="after the power loss")
    assert (found.state, payloads) == ("complete", captured)
