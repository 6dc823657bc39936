"""One record of a journal: its header, the chain of checksums, its offset, and what its JSON may say.

The checksums of an untrusted journal may be right, and its content may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from probes.digest import Buffer
from probes.signature import DTYPES

FORMAT = "journal.v1"
MAGIC = b"PRJ1"
HEADER_BYTES = 64
ALIGNMENT = 64
PAGE = 4096
PAYLOAD_ALIGNMENT = 8
NO_DIGEST = bytes(32)

FIXED = Struct("<IIIIQ")  # step, phase id, entries, annex bytes, global step
ENTRY = Struct("<IIIiIIQ")  # descriptor, flags, step, microstep, call, backward, offset

CAPTURE = np.dtype(
    {
        "names": ["descriptor", "flags", "step", "microstep", "call", "backward", "offset"],
        "formats": ["<u4", "<u4", "<u4", "<i4", "<u4", "<u4", "<u8"],
    }
)
"""An entry as NumPy reads it."""

MOST_AXES = 64
LARGEST = 1 << 62  # of a size; practically unlimited, and still far from the limit of 64 bits
FILL = "\0"  # HDF5 pads texts of fixed length with it

_FIELDS = Struct("<4sBBHQQI32s")
_CHECK = Struct("<I")
_KEY = {"probe", "target", "leaf", "phase"}
_U4, _I8 = 1 << 32, 1 << 63


class RecordKind(IntEnum):
    """The kind of a record."""

    HEAD = 1
    DESCRIPTOR = 2
    EXTENT = 3
    FRAME = 4
    END = 5
    SYNC = 6


class FrameFlag(IntFlag):
    """The effects of a frame besides holding captures."""

    COMMIT = 1
    ABORT = 2


class EntryFlag(IntFlag):
    """The properties of a capture."""

    LATE = 1
    INLINE = 2


class RecordHeader(NamedTuple):
    """The fields of a record's header except its check.

    Attributes:
        kind: one of `RecordKind`.
        flags: `FrameFlag` of a frame, else 0.
        sequence: number of the record in its journal, from 0.
        length: bytes of the body.
        checked: leading bytes of the body that the check covers.
        digest: BLAKE3 of the rest of the body, or zeros.
    """

    kind: int
    flags: int
    sequence: int
    length: int
    checked: int
    digest: bytes

    def fields(self) -> bytes:
        """The header without its checksum."""
        return pack_fields(*self)


def pack_fields(kind: int, flags: int, sequence: int, length: int, checked: int, digest: bytes) -> bytes:
    """A header without its checksum, on the fast path; the arguments are those of `RecordHeader`."""
    return _FIELDS.pack(MAGIC, kind, flags, 0, sequence, length, checked, digest)


def place(end: int) -> int:
    """The start of the record after one that ends at `end`."""
    return -(-end // ALIGNMENT) * ALIGNMENT


def extent_place(end: int) -> int:
    """The start of an EXTENT after a record that ends at `end`, so that its payload is aligned to a page."""
    return -(-(end + HEADER_BYTES) // PAGE) * PAGE - HEADER_BYTES


def payload_start(checked: int) -> int:
    """The offset of the payloads of a frame in its body."""
    return -(-checked // PAYLOAD_ALIGNMENT) * PAYLOAD_ALIGNMENT


def link(seed: int, fields: bytes, checked: Iterable[Buffer]) -> int:
    """The check of a record: the CRC-32 of its header and the checked part of its body, seeded with the check before.

    Args:
        seed: the check before; of the first record the CRC-32 of the nonce.
        fields: the header without its check.
        checked: the checked part of the body, in pieces.
    """
    check = crc32(fields, seed)
    for part in checked:
        check = crc32(part, check)
    return check


def seal_header(fields: bytes, check: int) -> bytes:
    """The 64 bytes of a header."""
    return fields + _CHECK.pack(check)


def parse_header(raw: Buffer) -> tuple[RecordHeader, int] | None:
    """A header and its check out of 64 bytes, or None if they cannot be one."""
    magic, kind, flags, reserved, sequence, length, checked, digest = _FIELDS.unpack_from(raw)
    if magic != MAGIC or reserved or checked > length:
        return None
    (check,) = _CHECK.unpack_from(raw, _FIELDS.size)
    return RecordHeader(kind, flags, sequence, length, checked, digest), check


def head_fault(head: dict[str, Any]) -> str:
    """The fault of a HEAD, or an empty text."""
    starts = head.get("global_step_start", {})
    numbers = (("epoch", None, 0), ("attempt", 1, 1), ("rank", 0, 0), ("segment", 0, 0), ("first_step", 0, 0))
    for name, default, least in numbers:
        value = head.get(name, default)
        if not _is_number(0 if name == "segment" and value is None else value, least, _U4):
            return f"a HEAD whose {name} is {_shown(value)}"
    if not isinstance(starts, dict) or not all(_is_number(start, 0, _I8) for start in starts.values()):
        return "a HEAD whose `global_step_start` is not one number per phase"
    if not isinstance(head.get("manifest") or {}, dict):
        return "a HEAD whose manifest is not an object"
    texts = ("run_id", "spec")
    ends = next((f"a HEAD whose {name} ends in NUL" for name in texts if str(head.get(name, "")).endswith(FILL)), "")
    return _first_not_text(head, texts) or ends


def descriptor_fault(about: Mapping[str, Any]) -> str:
    """The fault of a DESCRIPTOR, or an empty text."""
    key, shape, dtype = about.get("key"), about.get("shape"), about.get("dtype")
    if not isinstance(key, dict) or set(key) != _KEY or not all(isinstance(name, str) for name in key.values()):
        return "a descriptor without a series key"
    if any(name.endswith(FILL) for name in key.values()):
        return "a series whose name ends in NUL, with which HDF5 fills up texts"
    if not isinstance(shape, list | tuple) or not _are_sizes(shape) or not isinstance(dtype, str) or dtype not in DTYPES:
        return "a descriptor without a dtype and a shape"
    if not _is_number(about.get("epoch", 0), 0, _U4):
        return f"a descriptor whose epoch is {_shown(about['epoch'])}"
    dims = about.get("dims")
    if dims is not None and (not _are_texts(dims) or len(dims) != len(shape)):
        return "a descriptor whose `dims` are not one name per axis"
    if any(name == "." or FILL in name for name in dims or ()):
        return "a descriptor with a name of an axis that no dataset can have"
    coords, attrs = about.get("coords") or {}, about.get("attrs") or {}
    if not isinstance(coords, dict) or not all(_are_labels(labels) for labels in coords.values()):
        return "a descriptor whose `coords` are not labels"
    if not isinstance(attrs, dict):
        return "a descriptor whose `attrs` are not a mapping"
    if not (all(map(_fits_labels, coords.values())) and all(FILL not in name and _fits(value) for name, value in attrs.items())):
        return "a descriptor with a label or an attribute that ends in NUL, with which HDF5 fills up texts"
    return ""


def end_fault(end: dict[str, Any]) -> str:
    """The fault of an END, or an empty text."""
    closing = end.get("closing") or {}
    if not isinstance(end.get("complete", False), bool) or not isinstance(closing, dict):
        return "an END without `complete` and `closing`"
    return _first_not_text(end, ("reason",)) or ("a reason that ends in NUL" if end.get("reason", "").endswith(FILL) else "")


def annex_fault(annex: dict[str, Any]) -> str:
    """The fault of an annex, or an empty text."""
    gaps, ids = annex.get("gaps", []), annex.get("ids") or []
    if not isinstance(gaps, list) or not all(_is_gap(gap) for gap in gaps):
        return "gaps that are not [series, reason, count]"
    if not isinstance(ids, list) or not all(isinstance(one, str) or type(one) is int for one in ids):
        return "sample ids that are neither integers nor strings"
    return ""


def _first_not_text(about: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((f"a record whose {name} is {_shown(about[name])}" for name in names if not isinstance(about.get(name, ""), str)), "")


def _is_number(value: Any, least: int, end: int) -> bool:
    return type(value) is int and least <= value < end


def _are_texts(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(one, str) for one in values)


def _are_labels(values: Any) -> bool:
    if not isinstance(values, list | tuple):
        return False
    return _are_texts(values) or all(type(one) is float or _is_number(one, -_I8, _I8) for one in values)


def _are_sizes(shape: Sequence[Any]) -> bool:
    return len(shape) <= MOST_AXES and all(_is_number(size, 0, LARGEST) for size in shape)


def _fits_labels(labels: Any) -> bool:
    """Whether labels can be texts of variable length, which end at the first NUL."""
    return not any(isinstance(one, str) and FILL in one for one in labels)


def _fits(value: Any) -> bool:
    """Whether an attribute is read back unchanged: texts of fixed length are padded with NUL."""
    texts = value if isinstance(value, list | tuple) else (value,)
    return not any(isinstance(one, str) and one.endswith(FILL) for one in texts)


def _is_gap(gap: Any) -> bool:
    return isinstance(gap, list) and len(gap) == 6 and _are_texts(gap[:5]) and _is_number(gap[5], 0, _I8)


def _shown(value: Any) -> str:
    return repr(value)[:40]
