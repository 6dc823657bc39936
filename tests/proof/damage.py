"""Damage to a sealed run, one piece at a time, and the table of the README that counts it: `python -m tests.proof.damage`."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from probes.digest import canonical
from probes.proof.finding import CODES
from probes.proof.verify import verify
from probes.run_directory.manifest import EnvironmentRecord, Manifest
from tests import independent_verifier
from tests.pages import ROOT
from tests.proof.runs import manifest, replaced, small, write_run

FILE = "epoch-0000.h5"
BYTES, OBJECTS, LEDGER, MANIFEST = KINDS = (
    "one bit of each byte of a file flipped",
    "each object, attribute and element of a file changed, renamed, added or removed",
    "each line of the ledger edited in each key, swapped, duplicated, removed",
    "each line of the manifest edited, swapped with the next, duplicated, removed",
)
FROM_HDF5 = frozenset(["CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates"])
Found = set[str]
INSIDE: Found = set()
OUTSIDE = {"file-root"}  # sample ids, and what stands there for other readers


class Damage(NamedTuple):
    """One thing done to a run.

    Attributes:
        kind: one of `KINDS`.
        what: what is done, for the message of a test.
        file: the file that is changed.
        change: the new content of the file.
        codes: one of these has to be found; where it is empty, anything that says what of the content changed.
    """

    kind: str
    what: str
    file: str
    change: Callable[[bytes], bytes]
    codes: Found


def sealed(path: Path) -> Path:
    """A run of three epochs whose files have the same size wherever it is made."""
    write_run(path, epochs=3, source=small, origin=_origin(), gaps=True)
    return path


def _origin() -> Manifest:
    environment = EnvironmentRecord(
        python="CPython 3.11",
        torch="2.6.0",
        torch_commit="c" * 40,
        cuda=None,
        cudnn=None,
        numpy="2.0",
        device="cpu",
        cpu="x86_64 AVX2",
        threads=2,
        interop_threads=2,
        deterministic="off",
        cudnn_deterministic=False,
        cudnn_benchmark=False,
        matmul_precision="highest",
        tf32={"matmul": False, "cudnn": True},
        autocast=None,
        world=1,
        default_dtype="float32",
        sdp={"flash": True, "math": True},
        variables={},
    )
    origin, packages = manifest(), {"numpy": "2.0", "torch": "2.6.0"}
    random = origin.random.model_copy(update={"torch_seed": 0, "digests": {"torch": "ab" * 32, "python": "cd" * 32}})
    code = origin.code.model_copy(update={"directory": "~/digits"})
    started = "2026-01-01T00:00:00+00:00"
    fixed = {"environment": environment, "packages": packages, "random": random, "code": code, "started": started, "unknown": {}}
    return replaced(origin, **fixed, machine="Linux", torch_build="PyTorch built with:\n  - GCC", probes="0.1.0")


def flips(run: Path) -> Iterator[Damage]:
    """A bit of every byte; which one goes with its place."""
    places = named_places(run / FILE)
    for at in range((run / FILE).stat().st_size):
        codes = {code for place, code in places.items() if at in place} or set(CODES)
        yield Damage(BYTES, f"byte {at}", FILE, lambda good, at=at: good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :], codes)


def named_places(path: Path) -> dict[range, str]:
    """Places in a file, and what a flip there has to be called."""
    places = {}
    with h5py.File(path) as file:
        group = file["captures/acts/fc1:output"]
        named = {"values": "bit-flip", "step": "clock-edited", "global_step": "clock-edited", "block_digest": "digest-edited"}
        datasets = {group[name]: code for name, code in named.items()}
        texts = {"spec": "spec-edited", "resolved": "spec-edited", "manifest": "manifest-edited", "gaps": "gaps-edited"}
        datasets |= {file[name]: code for name, code in texts.items()}
        for dataset, code in datasets.items():
            start = dataset.id.get_offset()
            places[range(start, start + dataset.nbytes)] = code
    return places


def objects(run: Path) -> Iterator[Damage]:
    """Everything of a file, changed through h5py in every way that applies to it."""
    names: list[str] = []
    with h5py.File(run / FILE) as file:
        file.visit(names.append)
        found = [damage for name in ["/", *names] for damage in _of_object(name, file[name])]
    yield from found  # behind the `with`: HDF5 would hand out what it has of an open file


def _of_object(name: str, found: Any) -> Iterator[Damage]:
    if name != "/":
        yield _edit(f"{name} taken out", lambda file: file.__delitem__(name))
        yield _edit(f"{name} renamed", lambda file: file.move(name, f"{name}x"))
    yield _edit(f"an attribute added to {name}", lambda file: file[name].attrs.__setitem__("about", 1))
    for attribute in sorted(found.attrs):
        yield _edit(f"attribute {attribute} of {name} taken out", lambda file, key=attribute: file[name].attrs.__delitem__(key))
        if attribute not in FROM_HDF5:
            yield _edit(f"attribute {attribute} of {name} changed", lambda file, key=attribute: _other_attribute(file[name], key))
    yield from _of_group(name) if isinstance(found, h5py.Group) else _of_dataset(name, found)


def _of_group(name: str) -> Iterator[Damage]:
    yield _edit(f"a dataset added to {name}", lambda file: file[name].create_dataset("more", data=[1]))
    yield _edit(f"a group added to {name}", lambda file: file[name].create_group("more"))
    yield _edit(f"a soft link added to {name}", lambda file: file[name].__setitem__("more", h5py.SoftLink("/spec")))
    yield _edit(f"an external link added to {name}", lambda file: file[name].__setitem__("more", h5py.ExternalLink("x.h5", "/")))


def _of_dataset(name: str, found: Any) -> Iterator[Damage]:
    if not found.chunks and found.id.get_offset() is None:
        return  # a pure dimension: nothing is stored
    for place in [()] if found.shape == () else [(0,) * found.ndim, tuple(size - 1 for size in found.shape)]:
        yield _edit(f"element {place} of {name} changed", lambda file, place=place: _other_element(file[name], place))
    yield _edit(f"{name} read as bytes", lambda file: _replace(file, name, np.frombuffer(file[name][()].tobytes(), "u1")))
    if found.shape != ():
        yield _edit(f"the last row of {name} taken out", lambda file: _replace(file, name, file[name][:-1]))
        yield _edit(
            f"the last row of {name} doubled", lambda file: _replace(file, name, np.concatenate([file[name][...], file[name][-1:]]))
        )


def _other_attribute(owner: Any, name: str) -> None:
    value = owner.attrs[name]
    other = bytes([value[0] ^ 1]) + value[1:] if isinstance(value, bytes) and value else b"x"
    if not isinstance(value, bytes):
        array = np.array(value)
        other = np.array([b"x"] * array.size).reshape(array.shape) if array.dtype.kind == "S" else array + 1
    owner.attrs.create(name, np.bytes_(other) if isinstance(other, bytes) else other)


def _other_element(dataset: Any, place: tuple[int, ...]) -> None:
    value = np.array(dataset[place])
    changed = bytearray(value.tobytes())
    changed[0] ^= 1
    dataset[place] = np.frombuffer(bytes(changed), value.dtype)[0]


def _replace(file: h5py.File, name: str, values: Any) -> None:
    del file[name]
    file.create_dataset(name, data=values)


def _edit(what: str, change: Callable[[h5py.File], Any]) -> Damage:
    outside = "steps" in what or re.search(
        r"attribute default|(element|last row|read as bytes|attribute).*dim_0|dim_0 read|"
        r"attribute.*(values|step|block|block_digest|digest_byte|spec|resolved|manifest|closing|gaps)\b",
        what,
    )

    def changed(good: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as room:
            path = Path(room) / FILE
            path.write_bytes(good)
            with h5py.File(path, "r+") as file:
                change(file)
            return path.read_bytes()

    return Damage(OBJECTS, what, FILE, changed, set(CODES) if outside else INSIDE)


def ledger(run: Path) -> Iterator[Damage]:
    """Every line of the ledger."""
    lines = (run / "ledger.jsonl").read_bytes().splitlines()
    edited = {"ledger-edited", "newer-format", "file-missing"}
    for number, text in enumerate(lines):
        for key, value in json.loads(text).items():
            # no line follows the last, so that it may be the file that is not what its hash says
            codes = {*edited, "file-changed"} if key == "file_blake3" else edited
            other = canonical(json.loads(text) | {key: _other(value)})
            yield _lines(
                LEDGER, f"{key} of line {number}", lambda lines, at=number, other=other: [*lines[:at], other, *lines[at + 1 :]], codes
            )
        out = {"ledger-line-missing"} if number < len(lines) - 1 else {"file-unlisted"}
        yield _lines(LEDGER, f"line {number} taken out", lambda lines, at=number: [*lines[:at], *lines[at + 1 :]], out)
        yield _lines(LEDGER, f"line {number} doubled", lambda lines, at=number: [*lines[:at], lines[at], *lines[at:]], edited)
    for one, other in combinations(range(len(lines)), 2):
        yield _lines(LEDGER, f"lines {one} and {other} swapped", lambda lines, i=one, k=other: _swapped(lines, i, k), {"ledger-reordered"})


def manifest_lines(run: Path) -> Iterator[Damage]:
    """Every line of `run.json`."""
    count = len((run / "run.json").read_bytes().splitlines())
    for at in range(count):
        yield _manifest(f"line {at} edited", lambda lines, at=at: [*lines[:at], _other_line(lines[at]), *lines[at + 1 :]])
        yield _manifest(f"line {at} taken out", lambda lines, at=at: [*lines[:at], *lines[at + 1 :]])
        yield _manifest(f"line {at} doubled", lambda lines, at=at: [*lines[:at], lines[at], *lines[at:]])
    for at in range(count - 1):
        yield _manifest(f"lines {at} and {at + 1} swapped", lambda lines, at=at: _swapped(lines, at, at + 1))


def _manifest(what: str, change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    damage = _lines(MANIFEST, what, change, {"manifest-edited", "newer-format", "spec-edited"})
    return damage._replace(file="run.json")


def _lines(kind: str, what: str, change: Callable[[list[bytes]], list[bytes]], codes: Found) -> Damage:
    return Damage(kind, what, "ledger.jsonl", lambda good: b"".join(line + b"\n" for line in change(good.splitlines())), codes)


def _swapped(lines: list[bytes], one: int, other: int) -> list[bytes]:
    changed = list(lines)
    changed[one], changed[other] = lines[other], lines[one]
    return changed


def _other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool) or value is None:
        return not value if value is not None else "x"
    return value + 1 if isinstance(value, int) else f"{value}x"


def _other_line(line: bytes) -> bytes:
    """A line with its last letter or digit changed, or its bracket."""
    return (
        re.sub(rb"[0-9a-zA-Z](?=[^0-9a-zA-Z]*$)", lambda found: b"1" if found[0] == b"0" else b"0", line)
        if re.search(rb"\w", line)
        else line + b"}"
    )


def damages(run: Path, *, every_byte: bool) -> Iterator[Damage]:
    """Everything that is tried, with or without the flips, of which there are thousands."""
    if every_byte:
        yield from flips(run)
    yield from objects(run)
    yield from ledger(run)
    yield from manifest_lines(run)


def missed(run: Path, damage: Damage, *, twice: bool = True) -> Found | None:
    """The codes that `verify` finds after some damage, where they are not the right ones; None where they are.

    Args:
        run: the run, which is as before afterwards.
        damage: what is done to it.
        twice: whether to ask the independent verifier too.
    """
    good = (run / damage.file).read_bytes()
    changed = damage.change(good)
    assert changed != good, damage.what
    try:
        (run / damage.file).write_bytes(changed)
        codes = {finding.code for finding in verify(run).findings if not finding.note}
        right = codes & damage.codes if damage.codes else codes - {"file-changed"}
        return None if right and not (twice and independent_verifier.verifies(run)) else codes
    finally:
        (run / damage.file).write_bytes(good)


def believed(run: Path, damage: Damage) -> bool:
    """Whether a file still verifies after some damage where it is alone: no ledger and no manifest next to it, only its own digests."""
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / damage.file
        path.write_bytes(damage.change((run / damage.file).read_bytes()))
        return verify(path).ok


def tried(run: Path) -> Counter[str]:
    """How much is tried of each kind."""
    counts = Counter(damage.kind for damage in damages(run, every_byte=False))
    counts[BYTES] = (run / FILE).stat().st_size
    return counts


def table(counts: Counter[str]) -> str:
    """The counts as they stand in the README; every one is found, or a test fails."""
    rows = [f"| {kind} | {counts[kind]:,} | {counts[kind]:,} |" for kind in KINDS]
    return "\n".join(["| damage to a sealed run, one at a time | tried | found |", "|---|---|---|", *rows]) + "\n"


def main() -> None:
    """Write the table into the README."""
    room = Path(tempfile.mkdtemp())
    try:
        readme, text = ROOT / "README.md", table(tried(sealed(room / "run")))
        page = re.sub(r"\| damage to a sealed run.*?\n(?=\n)", text, readme.read_text(encoding="utf-8"), flags=re.DOTALL)
        readme.write_text(page, encoding="utf-8")
    finally:
        shutil.rmtree(room)


if __name__ == "__main__":
    main()
