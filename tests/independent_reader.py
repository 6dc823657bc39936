"""A second reader of journals and capture files, written from `schemas/` alone: h5py, BLAKE3, zlib and JSON, and nothing of the package."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from blake3 import blake3

HEAD, DESCRIPTOR, EXTENT, FRAME, END, SYNC = range(1, 7)
COMMIT, ABORT = 1, 2
LATE, INSIDE = 1, 2
HEADER = struct.Struct("<4sBBHQQI32sI")
BYTES = {"bool": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16}
BYTES |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}
PAIRS = {"complex32", "complex64", "complex128"}
Key = tuple[str, str, str, str]


class Stored(NamedTuple):
    """One capture, wherever it is stored."""

    key: Key
    dtype: str
    clock: tuple[int, int, int, int, int]  # epoch, step, microstep, call, backward
    shape: tuple[int, ...]
    payload: bytes
    attributes: dict[str, Any]
    order: int


class Record(NamedTuple):
    """One record of a journal; `agrees` is None where it has no digest."""

    kind: int
    flags: int
    body: int
    length: int
    checked: int
    agrees: bool | None


def records(content: bytes) -> Iterator[Record]:
    """The chain of records from the first byte on."""
    end, sequence, check = 0, 0, 0
    while True:
        first = -(-end // 64) * 64
        page = -(-(end + 64) // 4096) * 4096 - 64
        found = None
        for at in (first, page):
            if at + 64 <= len(content):
                found = found or _record(content, at, sequence, check)
        if found is None:
            return
        record, check = found
        if record.agrees is False and record.body + record.length == len(content):
            return
        yield record
        if record.kind == END:
            return
        end, sequence = record.body + record.length, sequence + 1


def _record(content: bytes, at: int, sequence: int, before: int) -> tuple[Record, int] | None:
    magic, kind, flags, reserved, number, length, checked, digest, stated = HEADER.unpack_from(content, at)
    body = at + 64
    if magic != b"PRJ1" or reserved or number != sequence or checked > length or body + length > len(content):
        return None
    text = content[body : body + checked]
    if sequence == 0:
        before = zlib.crc32(bytes.fromhex(json.loads(text)["nonce"]))
    check = zlib.crc32(text, zlib.crc32(content[at : at + 60], before))
    if check != stated:
        return None
    rest = content[body + checked : body + length]
    agrees = None if digest == bytes(32) else blake3(rest).digest() == digest
    return Record(kind, flags, body, length, checked, agrees), check


def journal(content: bytes) -> tuple[dict[str, Any], list[Stored], dict[str, Any] | None]:
    """The head of a journal, its committed captures in the order in which they were written, and what END says."""
    head: dict[str, Any] = {}
    descriptors: list[dict[str, Any]] = []
    phases: dict[int, str] = {}
    open_entries: list[tuple[Any, ...]] = []
    broken: list[tuple[int, int]] = []
    found: list[Stored] = []
    taken: dict[Any, int] = {}
    end = None
    for record in records(content):
        text = content[record.body : record.body + record.checked]
        if record.agrees is False:
            broken.append((record.body + record.checked, record.body + record.length))
        if record.kind == HEAD:
            head = json.loads(text)
        elif record.kind == DESCRIPTOR:
            descriptors.append(json.loads(text))
        elif record.kind == END:
            end = json.loads(text)
        elif record.kind == FRAME:
            _, _, entries, annex, _ = struct.unpack_from("<IIIIQ", text)
            table = [struct.unpack_from("<IIIiIIQ", text, 24 + 32 * number) for number in range(entries)]
            more = text[24 + 32 * entries : 24 + 32 * entries + annex]
            notes = json.loads(more) if more else {}
            payloads = record.body + -(-(24 + 32 * entries + annex) // 8) * 8
            open_entries += [(*row[:6], row[6] + (payloads if row[1] & INSIDE else 0)) for row in table]
            if record.flags & COMMIT:
                phases |= {int(number): name for number, name in notes.get("phases", {}).items()}
                found += _captures(content, head, descriptors, open_entries, broken, taken)
            if record.flags & (COMMIT | ABORT):
                open_entries = []
    return head, found, end


def _captures(content: bytes, head: dict[str, Any], descriptors: Any, entries: Any, broken: Any, taken: Any) -> list[Stored]:
    """The captures of one commit; none, if bytes of one of them are not those that were written."""
    out = []
    for number, _, step, microstep, call, backward, offset in entries:
        about = descriptors[number]
        size = math.prod(about["shape"]) * BYTES[about["dtype"]]
        if any(offset < stop and offset + size > start for start, stop in broken):
            return []
        key = tuple(about["key"][name] for name in ("probe", "target", "leaf", "phase"))
        epoch = about.get("epoch", head["epoch"])
        place = epoch, key[3], step
        order = taken[place] = taken.get(place, -1) + 1
        clock = epoch, step, microstep, call, backward
        stored = Stored(key, about["dtype"], clock, tuple(about["shape"]), content[offset : offset + size], about["attrs"], order)
        out.append(stored)
    return out


def capture_file(path: Path) -> list[Stored]:
    """The captures of a sealed file, series by series."""
    found: list[Stored] = []
    content = path.read_bytes()
    with h5py.File(path, "r") as file:
        for probe in file["captures"].values():
            for group in probe.values():
                found += series(group, content)
    return found


def series(group: Any, content: bytes) -> Iterator[Stored]:
    """The captures of one series in their order."""
    about = {name: plain(value) for name, value in group.attrs.items()}
    steps = group["step"][...]
    columns = [
        group[name][...] if name in group else np.full(len(steps), about[name]) for name in ("epoch", "microstep", "call", "backward")
    ]
    orders = group["order"][...] if "order" in group else np.full(len(steps), about["order"])
    variants = json.loads(about.get("variants") or (group["variants"][()] if "variants" in group else b"[]"))
    values = group["values"]
    dtype = about["torch_dtype"]
    width = values.id.get_type().get_size()
    raw = elements(values, content)
    sizes = values.shape[:-1] if dtype in PAIRS else values.shape
    lanes = 2 if dtype in PAIRS else 1
    key = tuple(about[name] for name in ("probe", "target", "leaf", "phase"))
    at = 0
    for number, step in enumerate(steps.tolist()):
        if about["layout"] == "stacked":
            shape = sizes[1:]
        elif about["layout"] == "concatenated":
            shape = (int(group["row_size"][number]), *sizes[1:])
        else:
            shape = tuple(int(size) for size in group["shape"][number] if size >= 0)
            at = int(group["offset"][number]) * lanes * width
        length = math.prod(shape) * lanes * width
        epoch, microstep, call, backward = (int(column[number]) for column in columns)
        of = {**about, **(variants[int(group["variant"][number])] if "variant" in group else {})}
        yield Stored(key, dtype, (epoch, step, microstep, call, backward), shape, raw[at : at + length], of, int(orders[number]))
        at += length


def whole(parts: dict[int, Stored]) -> Any:
    """The distributed tensor of one clock, of all ranks' captures: boxes at their offsets, replicas once and partial values added up."""
    places = [json.loads(one.attributes["sharding"]) for one in parts.values()]
    out = np.zeros(places[0]["global_shape"])
    times = np.zeros(out.shape, int)
    reduced = [axis for axis, one in enumerate(places[0]["placements"]) if one.startswith("P")]
    for place, part in zip(places, parts.values(), strict=True):
        if any(
            at and axis not in reduced and named == "R"
            for axis, (at, named) in enumerate(zip(place["coordinate"], place["placements"], strict=True))
        ):
            continue  # a replica
        value = np.frombuffer(part.payload, "<f4").reshape(part.shape)
        box = tuple(slice(start, start + size) for start, size in zip(place["offsets"], place["local_shape"], strict=True))
        out[box] += value
        times[box] += 1
    sums = math.prod(places[0]["mesh_shape"][axis] for axis in reduced)
    if (times != sums).any():
        raise ValueError("a part is missing")
    return out


def elements(values: Any, content: bytes) -> bytes:
    """The bytes of a dataset in C order, chunks decoded by their filters."""
    width = values.id.get_type().get_size()
    size = math.prod(values.shape) * width
    if values.chunks is None:
        start = values.id.get_offset()
        return content[start : start + size] if size else b""
    out = np.zeros((*values.shape, width), np.uint8)
    for number in range(values.id.get_num_chunks()):
        info = values.id.get_chunk_info(number)
        piece = np.frombuffer(decoded(values, info, content, width), np.uint8).reshape(*values.chunks, width)
        inside = tuple(
            slice(0, min(length, whole - start))
            for start, length, whole in zip(info.chunk_offset, values.chunks, values.shape, strict=True)
        )
        place = tuple(slice(start, start + one.stop) for start, one in zip(info.chunk_offset, inside, strict=True))
        out[place] = piece[inside]
    return out.tobytes()


def decoded(values: Any, info: Any, content: bytes, width: int) -> bytes:
    """The bytes of one chunk: the filters undone from the last to the first, but those that its mask leaves out."""
    data = content[info.byte_offset : info.byte_offset + info.size]
    filters = values.id.get_create_plist()
    for number in reversed(range(filters.get_nfilters())):
        if info.filter_mask & (1 << number):
            continue
        code = filters.get_filter(number)[0]
        if code == h5py.h5z.FILTER_DEFLATE:
            data = zlib.decompress(data)
        elif code == h5py.h5z.FILTER_SHUFFLE:
            data = np.frombuffer(data, np.uint8).reshape(width, -1).T.tobytes()
        elif code == 32015:
            import zstandard

            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=math.prod(values.chunks) * width)
        else:
            import blosc2

            data = blosc2.decompress(data)
    return bytes(data)


def plain(value: Any) -> Any:
    """An attribute as a Python value."""
    found = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(found, list):
        return [one.decode() if isinstance(one, bytes) else one for one in found]
    return found.decode() if isinstance(found, bytes) else found
