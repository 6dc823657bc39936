"""What a reader has to find in the corpus, from h5py, JSON, BLAKE3 and the pages in `schemas/`, and nothing of the package.

`python expect.py DIRECTORY BOOT NAME...` prints the expectation of the runs NAME in DIRECTORY as JSON. What the runs noted in
plain hooks is held against the files where they are sealed; of journals it is the expectation itself.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from hashlib import sha256
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any

import blosc2
import h5py
import numpy as np
import zstandard
from blake3 import blake3

PAIRS = ("complex32", "complex64", "complex128")
CLOCK = ("epoch", "step", "global_step", "microstep", "call", "backward", "rank")
NOTED = ("probe", "target", "leaf", "phase", "dtype", "epoch", "step", "microstep", "call", "rank")


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(data: bytes) -> str:
    return str(blake3(data).hexdigest())


def main(place: Path, boot: str, names: list[str]) -> None:
    """Print the expectation."""
    runs = {name: expected(place / name, noted(place, name)) for name in names}
    pair = divergence(place / "pair-a", place / "pair-b")
    lines = ",\n".join(f"{json.dumps(name)}: {line(found)}" for name, found in sorted(runs.items()))
    print(f'{{"boot_id": {line(boot)},\n"first_divergence": {line(pair)},\n"runs": {{\n{lines}\n}}}}')


def line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def noted(place: Path, name: str) -> list[dict[str, Any]]:
    """What the hooks of a run saw in committed steps."""
    lines = [line for path in sorted(place.glob(f"{name}.rank-*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def expected(run: Path, notes: list[dict[str, Any]]) -> dict[str, Any]:
    """What one run is to be read as."""
    lines = {path.name: ledger(path) for path in sorted(run.glob("ledger*.jsonl"))}
    entries = [entry for each in lines.values() for entry in each]
    journals = sorted(path.name for path in run.glob("epoch-*.journal"))
    attempts = attempts_of(entries)
    current = {name for attempt in attempts if attempt["current"] for name in attempt["files"]}
    order = sorted(
        (entry for entry in entries if entry["file"] in current), key=lambda one: (one["epoch"], one["rank"], one["segment"] or 0)
    )
    sealed = [File(run / entry["file"]) for entry in order]
    found: dict[str, Any] = {
        "heads": {name: head_of(run / name) for name in lines},
        "head": run_head({name: head_of(run / name) for name in lines}),
        "roots": roots_of(order),
        "attempts": attempts,
        "states": states_of(attempts),
        "files": {
            entry["file"]: [entry["captures"], entry["captures_root"]] for entry in sorted(entries, key=lambda one: str(one["file"]))
        },
        "notes": sorted(note for entry in entries for note in notes_of(run, entry, current)),
        "events": [event for file in sealed for event in (file.closing.get("trigger") or {}).get("events", ())],
        "series": series_of(sealed),
        "ids": ids_of(sealed),
        "journals": {name: recoverable(run, name, notes) for name in journals},
    }
    agree(found["series"], notes, set() if not journals else {(*place_of(name), None) for name in journals})
    return found


# Ledgers


def ledger(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def head_of(path: Path) -> str:
    return digest(path.read_bytes().split(b"\n")[-2])


def run_head(heads: dict[str, str]) -> str:
    if not heads:
        return ""
    return next(iter(heads.values())) if len(heads) == 1 else digest(canonical(heads))


def attempts_of(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attempts at every epoch; the highest that is complete counts, or the highest where none is."""
    tries: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for entry in entries:
        tries.setdefault((entry["epoch"], entry["rank"], entry["attempt"]), []).append(entry)
    found = []
    for (epoch, rank, attempt), parts in sorted(tries.items()):
        parts.sort(key=lambda one: one["segment"] or 0)
        found.append(
            {"epoch": epoch, "rank": rank, "attempt": attempt, "files": [one["file"] for one in parts], "complete": parts[-1]["complete"]}
        )
    for each in found:
        others = [one for one in found if (one["epoch"], one["rank"]) == (each["epoch"], each["rank"])]
        each["current"] = each is max(others, key=lambda one: (one["complete"], one["attempt"]))
    return found


def states_of(attempts: list[dict[str, Any]]) -> dict[str, str]:
    states: dict[str, str] = {}
    for attempt in attempts:
        if attempt["current"]:
            whole = attempt["complete"] and states.get(str(attempt["epoch"]), "complete") == "complete"
            states[str(attempt["epoch"])] = "complete" if whole else "incomplete"
    return states


def roots_of(entries: list[dict[str, Any]]) -> dict[str, str]:
    """The captures root of each epoch and rank, which of segments is over the list of theirs."""
    roots = {}
    for (epoch, rank), parts in groupby(entries, lambda one: (one["epoch"], one["rank"])):
        each = list(parts)
        cut = each[0]["segment"] is not None
        roots[f"{epoch}/{rank}"] = (
            digest(canonical({"segments": [one["captures_root"] for one in each]})) if cut else each[0]["captures_root"]
        )
    return roots


def notes_of(run: Path, entry: dict[str, Any], current: set[str]) -> list[list[str]]:
    """What a verification says of a file that is as it was sealed."""
    with h5py.File(run / entry["file"], "r") as file:
        gaps = json.loads(bytes(file["gaps"][()]).rstrip(b"\0") or b"[]")
    open_end = not entry["complete"] and entry["reason"] != "continued in the next segment"
    said = {"incomplete": open_end, "gaps": bool(gaps), "superseded": entry["file"] not in current}
    return [[entry["file"], code] for code, holds in said.items() if holds]


# Sealed files


class File:
    """The series of a file, as `schemas/capture-file.v1.md` has them."""

    def __init__(self, path: Path) -> None:
        with h5py.File(path, "r") as file:
            self.rank = int(file.attrs["rank"])
            self.closing = json.loads(bytes(file["closing"][()]).rstrip(b"\0") or b"{}")
            self.series = [self.one(group) for probe in file["captures"].values() for group in probe.values()]
            self.ids = {text(group.attrs.get("phase", name)): ids(group) for name, group in file.get("steps", {}).items()}

    def one(self, group: Any) -> dict[str, Any]:
        about = {name: text(group.attrs[name]) for name in ("probe", "target", "leaf", "phase")}
        dtype = text(group.attrs["torch_dtype"])
        clocks, count = clocks_of(group), len(group["step"])
        shapes, payloads = payloads_of(group, dtype, count)
        captures = []
        for index in range(count):
            clock = [self.rank if name == "rank" else clocks[name][index] for name in CLOCK]
            captures.append([*clock, shapes[index], sha256(payloads[index]).hexdigest()])
        names = attribute(group, "dims")
        labels = {name.removeprefix("labels_"): listed(group, name) for name in [*group.attrs, *group] if name.startswith("labels_")}
        return {**about, "dtype": dtype, "dims": names, "labels": labels, "captures": captures}


def clocks_of(group: Any) -> dict[str, list[int]]:
    """The clock of each capture: a dataset where it varies, else an attribute."""
    count = len(group["step"])
    found = {}
    for name in CLOCK[:-1]:
        found[name] = group[name][()].tolist() if name in group else [int(group.attrs[name])] * count
    return found


def payloads_of(group: Any, dtype: str, count: int) -> tuple[list[list[int]], list[bytes]]:
    """Shape and bytes of each capture."""
    values, layout = group["values"], text(group.attrs["layout"])
    content, lanes = content_of(values), 2 if dtype in PAIRS else 1
    item = width(values) * lanes
    own = list(values.shape[:-1] if lanes == 2 else values.shape)
    if layout == "stacked":
        shapes = [own[1:]] * count
    elif layout == "concatenated":
        shapes = [[int(rows), *own[1:]] for rows in group["row_size"][()]]
    else:
        shapes = [[int(size) for size in row if size >= 0] for row in group["shape"][()]]
    sizes = [prod(shape) * item for shape in shapes]
    starts = [int(one) * item for one in group["offset"][()]] if layout == "ragged" else [sum(sizes[:index]) for index in range(count)]
    return shapes, [content[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def content_of(values: Any) -> bytes:
    """The bytes of a dataset in C order, decoded by hand where a filter is declared."""
    size = prod(values.shape) * width(values)
    if values.chunks is None:
        offset = values.id.get_offset()
        if not size or offset is None:
            return b""
        with Path(values.file.filename).open("rb") as file:  # as bits, which the library might convert
            file.seek(offset)
            return file.read(size)
    properties = values.id.get_create_plist()
    codes = [properties.get_filter(index)[0] for index in range(properties.get_nfilters())]
    out = bytearray()
    for index in sorted(range(values.id.get_num_chunks()), key=lambda one: values.id.get_chunk_info(one).chunk_offset):
        info = values.id.get_chunk_info(index)
        _, stored = values.id.read_direct_chunk(info.chunk_offset)
        chunk = decoded(bytes(stored), codes, width(values))
        room = [min(length, whole - start) for length, whole, start in zip(values.chunks, values.shape, info.chunk_offset, strict=True)]
        out += chunk[: prod(room) * width(values)]
    return bytes(out)


def width(values: Any) -> int:
    """Bytes of an element in the file; numpy may have no such type, and h5py then names a wider one."""
    return int(values.id.get_type().get_size())


def decoded(stored: bytes, codes: list[int], itemsize: int) -> bytes:
    if codes == [32026]:
        return bytes(blosc2.decompress2(stored))
    plain = zlib.decompress(stored) if codes == [2, 1] else zstandard.ZstdDecompressor().decompress(stored)
    return np.frombuffer(plain, np.uint8).reshape(itemsize, -1).T.tobytes()


def ids(group: Any) -> dict[str, list[Any]]:
    found = group["sample_id"][()].tolist()
    return {
        "step": group["step"][()].tolist(),
        "row_size": group["row_size"][()].tolist(),
        "sample_id": [one.decode() if isinstance(one, bytes) else one for one in found],
    }


def text(value: Any) -> str:
    found = value.decode() if isinstance(value, bytes) else str(value)
    return found.rstrip("\0")


def attribute(group: Any, name: str) -> list[str] | None:
    return [text(one) for one in group.attrs[name]] if name in group.attrs else None


def listed(group: Any, name: str) -> list[Any]:
    if name in group:
        return list(json.loads(bytes(group[name][()]).rstrip(b"\0")))
    return [text(one) if isinstance(one, bytes) else float(one) for one in group.attrs[name]]


def series_of(files: list[File]) -> list[dict[str, Any]]:
    """The series of a run: those of its files, joined in the order of epoch, rank and segment."""
    joined: dict[tuple[str, ...], dict[str, Any]] = {}
    for file in files:
        for one in file.series:
            known = joined.setdefault(tuple(one[name] for name in ("probe", "target", "leaf", "phase", "dtype")), {**one, "captures": []})
            known["captures"] += one["captures"]
    return [joined[key] for key in sorted(joined)]


def ids_of(files: list[File]) -> dict[str, Any]:
    """The ids of the samples by phase, one file's after the other's."""
    found: dict[str, Any] = {}
    for file in files:
        for phase, table in file.ids.items():
            known = found.setdefault(phase, {"step": [], "row_size": [], "sample_id": []})
            for name, column in table.items():
                known[name] += column
    return found


# Journals, and what was seen


def place_of(name: str) -> tuple[int, int]:
    """Epoch and rank of a file, from its name."""
    parts = name.split(".")
    ranks = [int(part.removeprefix("rank-")) for part in parts if part.startswith("rank-")]
    return int(parts[0].removeprefix("epoch-")), ranks[0] if ranks else 0


def head_record(path: Path) -> dict[str, Any]:
    """The JSON of a journal's HEAD."""
    with path.open("rb") as file:
        magic, kind, length = struct.unpack_from("<4sB3x8xQ", file.read(64))
        if (magic, kind) != (b"PRJ1", 1):
            raise ValueError(f"{path.name} is no journal")
        return dict(json.loads(file.read(length)))


def recoverable(run: Path, name: str, notes: list[dict[str, Any]]) -> dict[str, Any]:
    """What a journal holds: the committed steps of its epoch, less what a cut has taken."""
    head = head_record(run / name)
    epoch, rank = place_of(name)
    mine = [one for one in notes if (one["epoch"], one["rank"]) == (epoch, rank)]
    if "torn" in run.name:
        mine = [one for one in mine if one["step"] < max(other["step"] for other in mine)]
    if head.get("segment"):
        mine = [one for one in mine if one["step"] // 2 == head["segment"] - 1]
    start = head["global_step_start"].get("train", 0)
    joined: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in mine:
        key = tuple(one[name] for name in ("probe", "target", "leaf", "phase", "dtype"))
        known = joined.setdefault(key, dict(zip(("probe", "target", "leaf", "phase", "dtype"), key, strict=True)) | {"captures": []})
        clock = [one["epoch"], one["step"], start + one["step"], one["microstep"], one["call"], 0, one["rank"]]
        known["captures"].append([*clock, one["shape"], one["sha256"]])
    steps = sorted({one["step"] for one in mine})
    ended = run.name == "never-sealed"
    return {"durability": head["durability"], "complete": ended, "steps": steps, "series": [joined[key] for key in sorted(joined)]}


def agree(series: list[dict[str, Any]], notes: list[dict[str, Any]], apart: set[Any]) -> None:
    """Hold what is in sealed files against what plain hooks have seen."""
    stored = {}
    for one in series:
        for capture in one["captures"]:
            clock = dict(zip(CLOCK, capture, strict=False))
            about = {**one, **clock, "dtype": one["dtype"]}
            stored[tuple(about[name] for name in NOTED)] = capture[-2:]
    unsealed = {place[:2] for place in apart}
    compared = 0
    for note in notes:
        if (note["epoch"], note["rank"]) in unsealed:
            continue
        place = tuple(note[name] for name in NOTED)
        if stored.get(place) != [note["shape"], note["sha256"]]:
            raise ValueError(f"{place} was seen as {note['shape']} {note['sha256']}, and is stored as {stored.get(place)}")
        compared += 1
    print(f"{compared} of {len(stored)} captures were compared with what hooks saw", file=sys.stderr)


def divergence(a: Path, b: Path) -> dict[str, Any]:
    """The first capture in which two runs of the same series differ."""
    sides = []
    for run in (a, b):
        found = {}
        for name in sorted(path.name for path in run.glob("*.h5")):
            with h5py.File(run / name, "r") as file:
                for probe in file["captures"].values():
                    for group in probe.values():
                        clocks = clocks_of(group)
                        for index, value in enumerate(group["values"][()]):
                            place = (
                                clocks["epoch"][index],
                                clocks["step"][index],
                                *(text(group.attrs[key]) for key in ("probe", "target", "leaf")),
                            )
                            found[place] = value
        sides.append(found)
    left, right = sides
    differing = [place for place in sorted(left) if left[place].tobytes() != right[place].tobytes()]
    moment = [place for place in differing if place[:2] == differing[0][:2]]
    first = next(place for place in moment if place[-1] == "output")
    if [place for place in moment if place[-1] == "output"] != [first]:
        raise ValueError("several outputs differ first, and which of them is the first by the plan is not known here")
    index = [int(one) for one in np.argwhere(left[first] != right[first])[0]]
    clock = dict(zip(("epoch", "step", "probe", "target", "leaf"), first, strict=True))
    values = {name: side[first][tuple(index)].tobytes()[::-1].hex() for name, side in (("bits_a", left), ("bits_b", right))}
    return {**clock, "index": index, **values, "different": len(differing)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
