"""Files of strangers by the hundred thousand: good ones with bytes and words changed, each read by the function for such a file."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

import h5py
import numpy as np

from probes.capture_file.grouped import group_by_series, steps_in_order
from probes.errors import ProbesError
from probes.journal.scan import scan
from probes.proof.anchors.places import found as anchors_in
from probes.proof.diff import diff
from probes.proof.in_toto import PREDICATE
from probes.proof.start_check import StartCheck
from probes.proof.verify import verify
from probes.proof.verify_file import verify_file
from probes.reader.run import open as open_run
from probes.report.proof_page import blocks
from probes.run_directory.launch.launch_file import LaunchRecord, launches, write_launch
from probes.run_directory.ledger_lines import breaches, read_ledger
from probes.run_directory.owner.claim import claims
from probes.spec.load import load_text
from tests.pages import ROOT
from tests.proof.fuzz_verbs import Room, call
from tests.proof.fuzz_verbs import room as room_of_verbs
from tests.proof.runs import captures, small, write_run

STRUCTURES = (b"TREE", b"SNOD", b"HEAP", b"GCOL", b"\x89HDF", b"{")
SLOWEST = 5.0  # seconds of computing for one file
LONGEST = 30.0  # seconds after which one is stopped, also where it only waits
WORDS = (
    b"null", b"true", b"-1", b"0", b"1e999", b"4294967296", b"18446744073709551616", b"9" * 400, b'""', b"[]", b"{}", b"[[[[",
    b'"\\ud800"', b"\x00", b"\xff", b"\xc3\xa9", b"\xe2\x80\xae", b"\x1b[2J", b"*", b"&a", b"!!python/object:os.system",
    b"<<: *a", b"---\n", b"\t", b"? ", b"- ", b": ", b"|\n", b">\n", b"${a}", b"${", b"extends: [x.yaml]\n",
    b"preset:dead-units", b"../../../etc/passwd", b"**", b"[!", b"(?:a+)+$", b"NaN", b".inf", b"0x10", b"1_000", b"2026-01-01",
    b"yes",
)  # fmt: skip


class Fuzzed(Protocol):
    """What can be tried again and again."""

    @property
    def name(self) -> str:
        """Of what is tried."""

    def once(self, chance: random.Random) -> list[str]:
        """Try one case; returns what is wrong with how it ended, besides what it raises."""


class Verbs(NamedTuple):
    """Whole runs with a changed file, read by a verb."""

    name: str
    room: Room

    def once(self, chance: random.Random) -> list[str]:
        """Call one verb on one changed run."""
        return call(self.room, chance, lambda content, drawn: changed(content or b"\n", drawn, _structures(content)))


def _structures(content: bytes) -> tuple[bytes, ...]:
    return STRUCTURES if content.startswith(b"\x89HDF") else ()


class Target(NamedTuple):
    """One kind of file.

    Attributes:
        name: of the kind.
        seeds: contents of good files.
        read: reads a changed one; the folder is its own.
        structures: beginnings of internal structures, near which bytes are changed more often.
    """

    name: str
    seeds: list[bytes]
    read: Callable[[bytes], object]
    structures: tuple[bytes, ...] = ()

    def once(self, chance: random.Random) -> list[str]:
        """Read one changed file."""
        self.read(changed(chance.choice(self.seeds), chance, self.structures))
        return []


def targets(folder: Path) -> Iterator[Fuzzed]:
    """What is read, with good files made in a folder."""
    good, packed = folder / "good", folder / "packed"
    (folder / "verbs").mkdir(parents=True)
    write_run(good, epochs=1, source=small, gaps=True)
    write_run(good, epochs=2, first=1, source=captures, seals=False)
    write_run(packed, epochs=1, source=small, compression="gzip")
    room = folder / "room"
    shutil.copytree(good, room)

    def placed(name: str, content: bytes) -> Path:
        (room / name).write_bytes(content)
        return room / name

    def ledger(content: bytes) -> object:
        found = read_ledger(placed("ledger.jsonl", content))
        return list(breaches((found,)))

    def journal(content: bytes) -> object:
        found = scan(placed("epoch-0001.journal", content))
        return group_by_series(found), steps_in_order(found)

    specs = sorted((ROOT / "tests" / "specs" / "valid").glob("*.yaml"))
    yield Target("specs", [path.read_bytes() for path in specs], lambda content: load_text(content, "s.yaml", room))
    yield Target("ledgers", [(good / "ledger.jsonl").read_bytes()], ledger)
    yield Target("manifests", [(good / "run.json").read_bytes()], lambda content: StartCheck(placed("run.json", content).parent, (), {}))
    yield Target("journals", [(good / "epoch-0001.journal").read_bytes()], journal, (b"PRJ1", b"{", b'"'))
    files = [(run / "epoch-0000.h5").read_bytes() for run in (good, packed)]
    yield Target(
        "files",
        files,
        lambda content: verify_file(placed("epoch-0000.h5", content)),
        STRUCTURES,
    )
    yield Target("closings", [_closing(good / "epoch-0000.h5")], lambda content: _read_closing(room, good, content))
    yield Target("chunks", [_chunk(packed / "epoch-0000.h5")[1]], lambda content: _read_chunk(room, packed, content))
    yield Target("launches", [_launch(good)], lambda content: launches(placed("launch.json", content).parent))
    yield Target("claims", [_claim()], lambda content: [str(one.claim) for one in claims(placed("claim.json", content).parent)])
    yield Target("anchors", _anchors(good), lambda content: anchors_in(str(placed("anchor", content)), good, room))
    yield Verbs("verbs", room_of_verbs(folder / "verbs"))


def _launch(run: Path) -> bytes:
    """A launch file, as a run writes it."""
    record = LaunchRecord(
        run_id="r", attempt=1, world=2, next_epoch=0, launcher="torchrun", job="j", restart=0, agent="1", token="t", started="2026"
    )
    write_launch(run, record)
    content = (run / "launch.json").read_bytes()
    (run / "launch.json").unlink()
    return content


def _claim() -> bytes:
    """A claim of a process that is gone."""
    owner: dict[str, Any] = {"pid": 1 << 22, "host": "h", "since": "2026-01-01T00:00:00Z", "proof": "lock", "task": "write", "files": ["a"]}
    return json.dumps(owner).encode()


def _anchors(run: Path) -> list[bytes]:
    """An anchor, and a statement."""
    found = verify(run, sha256=True)
    plain = {"format": "anchor.v1", "run_id": "r", "head": found.head, "files": 1}
    stated = {"predicateType": PREDICATE, "predicate": {"run_id": "r", "ledger_head": found.head}}
    return [json.dumps(one).encode() for one in (plain, stated)]


def _closing(file: Path) -> bytes:
    """A closing record with all that readers look at."""
    with h5py.File(file) as opened:
        found = json.loads(opened["closing"][()])
    found |= {
        "imported": {"a.py": "0" * 64},
        "sources": {"name": "sources.zip", "sha256": "0" * 64},
        "environment": {"first_step": {"a": 1}, "end": {}},
    }
    found |= {"loaders": [{"dataset": {"class": "a.B", "of": [{"class": "c"}]}, "seed": 1}], "trigger": {"events": []}, "weights": None}
    row = {"name": "w", "role": "parameter", "dtype": "float32", "shape": [2, 2], "trained": True, "sum": "0" * 32}
    found["models"] = [{"name": "", "tensors": [row | {"sharding": {"placements": ["S(0)"], "mesh_shape": [2], "coordinate": [0]}}]}]
    found["accounts"] = [{"probe": "a", "target": "b", "value": "output", "lost": [["output", "limit", 1, ""]], "skipped": {"limit": 1}}]
    return json.dumps(found).encode()


def _read_closing(room: Path, good: Path, content: bytes) -> object:
    """Everything that reads a closing record: verification, its page, a comparison, and the reader."""
    path = room / "epoch-0000.h5"
    path.unlink(missing_ok=True)  # the one before may be open still
    path.write_bytes((good / path.name).read_bytes())
    with h5py.File(path, "r+") as file:
        del file["closing"]
        file.create_dataset("closing", data=np.bytes_(content))
    found = verify_file(path), open_run(path)
    return found, found[1].missing, found[1].verdicts, found[1].epoch_weights, blocks(verify(path)), diff(path, good / path.name).origins


def _chunk(file: Path) -> tuple[str, bytes]:
    """Name and bytes of the first compressed chunk of a file."""
    names: list[str] = []
    with h5py.File(file) as opened:
        opened.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) and found.chunks else None)
        return names[0], opened[names[0]].id.read_direct_chunk((0,) * opened[names[0]].ndim)[1]


def _read_chunk(room: Path, packed: Path, content: bytes) -> object:
    """A file whose first chunk has another content, and perhaps another size."""
    path = room / "epoch-0000.h5"
    path.unlink(missing_ok=True)  # the one before may be open still
    path.write_bytes((packed / path.name).read_bytes())
    with h5py.File(path, "r+") as file:
        chunked = file[_chunk(packed / path.name)[0]]
        chunked.id.write_direct_chunk((0,) * chunked.ndim, content)
    return verify_file(path), [series.numpy() for series in open_run(path).series]


def changed(data: bytes, chance: random.Random, structures: tuple[bytes, ...]) -> bytes:
    """A content with one to four changes."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = _place(out, chance, structures)
        way = chance.randrange(7)
        size = chance.choice((1, 1, 2, 4, 8, 64))
        if way <= 1:
            out[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
        elif way == 2:
            out[at : at + size] = bytes(chance.choice((0, 255, chance.randrange(256))) for _ in range(size))
        elif way == 3:
            word = chance.choice(WORDS)
            out[at : at + (len(word) if structures else 0)] = word
        elif way == 4 and not structures:
            del out[at : at + size]
        elif way == 5 and not structures:
            out[at:at] = out[at : at + size * 8] * chance.choice((1, 2, 50))
        elif way == 6 and chance.random() < 0.2:
            del out[at:]
        out = out or bytearray(b"\n")
    return bytes(out)


def _place(out: bytearray, chance: random.Random, structures: tuple[bytes, ...]) -> int:
    """Somewhere; often within a hundred bytes behind the beginning of a structure."""
    at = chance.randrange(len(out))
    if structures and chance.random() < 0.7:
        found = out.find(chance.choice(structures), at)
        at = min((found if found >= 0 else at) + chance.randrange(100), len(out) - 1)
    return at


class TooLong(BaseException):
    """One case was stopped."""


@contextmanager
def stopped(seconds: float) -> Iterator[None]:
    """Stop what takes longer, also where it waits for a pipe."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fuzz(target: Fuzzed, cases: range, at: Callable[[int], object] = lambda case: None) -> list[str]:
    """Read changed files; what is wrong with how they are read.

    Args:
        target: what is read.
        cases: the seeds of the changes.
        at: called with each case before it is tried, so that another process can watch.
    """
    problems: list[str] = []
    for case in cases:
        at(case)
        started = time.process_time()
        try:
            with stopped(LONGEST):
                problems += [f"{target.name} {case}: {one}" for one in target.once(random.Random(f"{target.name} {case}"))]
        except ProbesError:
            pass
        except TooLong:
            problems.append(f"{target.name} {case}: stopped after {LONGEST:.0f} s")
        except Exception as error:  # any failure is a finding
            problems.append(f"{target.name} {case}: {type(error).__name__}: {error}")
        if time.process_time() - started > SLOWEST:
            problems.append(f"{target.name} {case}: {time.process_time() - started:.1f} s")
    return problems
