"""Hash whole files, in a thread next to the one that reads their content."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from probes.digest import Hasher

SLICE_BYTES = 1 << 20  # long enough to leave the interpreter to the other thread, short enough for the cache of the processor


class Hashes(NamedTuple):
    """Digests of a whole file.

    Attributes:
        blake3: of its bytes.
        sha256: of its bytes, if requested; else empty.
    """

    blake3: str
    sha256: str


def hashes(path: Path, wanted: bool) -> Hashes:
    """The digests of a file.

    Args:
        path: the file.
        wanted: whether to take the SHA-256 too.
    """
    blake3 = prefix_hex(path, path.stat().st_size)
    if not wanted:
        return Hashes(blake3, "")
    with path.open("rb", buffering=0) as file:
        return Hashes(blake3, file_digest(file, "sha256").hexdigest())


def prefix_hex(path: Path, size: int) -> str:
    """BLAKE3 of the first bytes of a file, or of all if it has become shorter; a memory map would then end the process."""
    hasher = Hasher()
    piece = memoryview(bytearray(min(SLICE_BYTES, size)))
    with path.open("rb", buffering=0) as file:
        while size and (read := file.readinto(piece[: min(size, len(piece))])):
            hasher.update(piece[:read])
            size -= read
    return hasher.hexdigest()
