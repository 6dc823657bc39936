"""The weights of a run at the ends of its epochs, from the closing records of the files of all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from probes.errors import FileRefused
from probes.run_directory.attempts import ListedFile
from probes.run_directory.launch.whole_weights import WholeTensor, weights_of, whole_tensors
from probes.run_directory.listing import Directory
from probes.run_directory.manifest import WeightsRecord, weights_of_models


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
