"""The weights of a run, independent of their layout on its ranks: sums of the parts that all ranks state.

Those at the start are in the manifests, those at the end of an epoch in the closing records of its files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from probes.digest import blake3_hex, canonical
from probes.errors import FileRefused
from probes.plain_file import plain_object, read_plain
from probes.run_directory.attempts import ListedFile
from probes.run_directory.file_name import attempt_of_manifest, manifest_files
from probes.run_directory.listing import Directory
from probes.run_directory.manifest import DIGITS, LANES, MODULUS, WeightsRecord, check_shape, sum_text, weights_of_models

_SUM = re.compile(rf"[0-9a-f]{{{DIGITS * LANES}}}")
_CUT = re.compile(r"S\(\d+(?:, \d+)?\)")

Row = Mapping[str, Any]


class WholeTensor(NamedTuple):
    """A parameter or buffer of a launch.

    Attributes:
        dtype: torch's name without prefix.
        shape: sizes of the whole.
        sum: of its elements, in hexadecimal; empty if it is not known.
        lacks: why it is not known.
    """

    dtype: str
    shape: tuple[int, ...]
    sum: str
    lacks: str = ""


def first_manifests(directory: Path) -> list[dict[str, Any]]:
    """The manifests of the first start of a run, of all ranks that have one; those that cannot be read are left out."""
    found = []
    for path in manifest_files(directory):
        if attempt_of_manifest(path.name) == 1:
            with suppress(ValueError):
                one = plain_object(read_plain(path))
                check_shape(one)
                found.append(one)
    return found


def whole_tensors(manifests: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], WholeTensor]:
    """The tensors of all ranks by the name of their model and their own.

    Args:
        manifests: of one start, of all its ranks, each of its shape.
    """
    rows: dict[tuple[str, str], list[Row]] = {}
    for manifest in manifests:
        for model in manifest.get("models") or ():
            for row in model.get("tensors") or ():
                if row.get("same_as") is None:
                    rows.setdefault((str(model.get("name", "")), str(row.get("name", ""))), []).append(row)
    return {name: _whole(of) for name, of in sorted(rows.items())}


def weights_of(tensors: Mapping[tuple[str, str], WholeTensor]) -> str | None:
    """BLAKE3 of the names, dtypes, shapes and sums of all tensors; None if one sum is not known, or if there is no tensor."""
    if not tensors or any(not one.sum for one in tensors.values()):
        return None
    return blake3_hex(canonical([[*name, one.dtype, one.shape, one.sum] for name, one in sorted(tensors.items())]))


def weights_at_start(directory: Path) -> str | None:
    """The weights of a run at its first start, the same in every layout; None if they are not known."""
    return weights_of(whole_tensors(first_manifests(directory)))


def _whole(rows: Sequence[Row]) -> WholeTensor:
    first = rows[0]
    head = str(first.get("dtype", "")), tuple(first.get("shape") or ())
    if not all(_states_sum(row) for row in rows):
        return WholeTensor(*head, "", "a rank states no sum")
    if any((str(row.get("dtype", "")), tuple(row.get("shape") or ())) != head for row in rows):
        return WholeTensor(*head, "", "ranks have it in different dtypes or shapes")
    shardings = [row.get("sharding") for row in rows]
    if not any(shardings):
        return _same(head, [str(row["sum"]) for row in rows])
    if not all(shardings) or len({canonical([one["placements"], one["mesh_shape"]]) for one in shardings if one}) > 1:
        return WholeTensor(*head, "", "it lies on ranks in different ways")
    return _joined(head, rows)


def _states_sum(row: Row) -> bool:
    """Whether a row of a manifest, which is untrusted, has a sum, and describes the layout of its part if it is one."""
    sharding = row.get("sharding")
    sizes = {len(sharding[name]) for name in ("placements", "mesh_shape", "coordinate")} if sharding else {0}
    return len(sizes) == 1 and _SUM.fullmatch(str(row.get("sum"))) is not None


def _same(head: tuple[str, tuple[int, ...]], sums: Sequence[str]) -> WholeTensor:
    return WholeTensor(*head, sums[0]) if len(set(sums)) == 1 else WholeTensor(*head, "", "ranks have different ones")


def _joined(head: tuple[str, tuple[int, ...]], rows: Sequence[Row]) -> WholeTensor:
    """Add up the parts; replicas must be equal, and one of them counts."""
    sharding = rows[0]["sharding"]
    cut = [axis for axis, placement in enumerate(sharding["placements"]) if _CUT.fullmatch(placement)]
    parts: dict[tuple[int, ...], set[str]] = {}
    for row in rows:
        parts.setdefault(tuple(row["sharding"]["coordinate"][axis] for axis in cut), set()).add(str(row["sum"]))
    if len(parts) != prod(sharding["mesh_shape"][axis] for axis in cut):
        return WholeTensor(*head, "", "a rank has no manifest")
    if any(len(sums) > 1 for sums in parts.values()):
        return WholeTensor(*head, "", "replicas of a part differ")
    lanes = [[int(text[DIGITS * lane : DIGITS * (lane + 1)], 16) for (text,) in parts.values()] for lane in range(LANES)]
    return WholeTensor(*head, sum_text([sum(one) % MODULUS for one in lanes]))


class EpochTables(NamedTuple):
    """The tables of tensors that the ranks of a run stated at the end of one epoch.

    Attributes:
        epoch: its number.
        ranks: by rank, one table for each model.
        files: by rank, the file that states it.
        absent: whether a rank has a file of the epoch, but states nothing.
    """

    epoch: int
    ranks: dict[int, list[WeightsRecord]]
    files: dict[int, str]
    absent: bool

    @property
    def whole(self) -> dict[tuple[str, str], WholeTensor]:
        """The tensors of all ranks by the name of their model and their own."""
        return whole_tensors({"models": [one.model_dump(mode="json") for one in tables]} for _, tables in sorted(self.ranks.items()))

    @property
    def weights(self) -> str | None:
        """The digest of all tensors, the same in every layout; None if it is not known."""
        return None if self.absent else weights_of(self.whole)


def tables_of(closing: Mapping[str, Any]) -> list[WeightsRecord] | None:
    """The tables of tensors in a closing record, which is untrusted; None if it has none.

    Raises:
        ValueError: they do not fit their schema, or `weights` of the record does not follow from them.
    """
    stated = closing.get("models")
    if stated is None:
        return None
    if not isinstance(stated, list):
        raise ValueError("`models` is not a list")
    try:
        found = [WeightsRecord.model_validate(one) for one in stated]
    except ValidationError as error:
        raise ValueError(f"`models` does not fit its schema: {error.errors()[0]['msg']}") from error
    if weights_of_models(found) != closing.get("weights"):
        raise ValueError("`weights` does not follow from `models`")
    return found


def epoch_tables(directory: Directory) -> Iterator[EpochTables]:
    """The tables at the end of each epoch that has any, in order.

    Raises:
        FileRefused: a table does not fit its schema.
    """
    epochs: dict[int, dict[int, ListedFile]] = defaultdict(dict)
    for found in directory.current:  # of the segments of an epoch, the last one counts
        if found.sealed:
            epochs[found.epoch][found.rank] = found
    for epoch, files in sorted(epochs.items()):
        stated = {rank: _stated(directory, found.name) for rank, found in files.items()}
        ranks = {rank: tables for rank, tables in stated.items() if tables is not None}
        if ranks:
            yield EpochTables(epoch, ranks, {rank: found.name for rank, found in files.items()}, len(ranks) < len(stated))


def _stated(directory: Directory, name: str) -> list[WeightsRecord] | None:
    closing = directory.file(name).document("closing")  # without keeping it: a table is as large as that of a manifest
    try:
        return tables_of(closing) if isinstance(closing, dict) else None
    except ValueError as error:
        raise FileRefused("epoch-root", f'the closing record of "{directory.path / name}" cannot be used: {error}') from error


def weights_by_epoch(directory: Directory) -> dict[int, str | None]:
    """The digest of the weights at the end of each epoch that states them, the same in every layout; None if it is not known."""
    return {one.epoch: one.weights for one in epoch_tables(directory)}
