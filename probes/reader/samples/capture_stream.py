"""Captures read one after the other, with shuffled rows, divided among the workers of a loader."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from probes.errors import UsageError
from probes.optional_package import import_optional


class GroupedItems(Protocol):
    """Items by capture."""

    @property
    def captures(self) -> int:
        """The number of captures."""

    def groups(self, places: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
        """The items of some captures."""

    def __len__(self) -> int: ...


class CaptureStream:
    """The items of a dataset in the order of their captures, or shuffled by a seed.

    Args:
        items: the dataset.
        shuffle: the seed; None for the order of the run.
        buffer: how many captures are in memory while their rows are shuffled.
    """

    def __init__(self, items: GroupedItems, shuffle: int | None, buffer: int) -> None:
        if buffer < 1:
            raise UsageError(f"`buffer` is how many captures are in memory, 1 or more, not {buffer}")
        self.items = items
        self.shuffle = shuffle
        self.buffer = buffer
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.items)

    def part(self, worker: int, workers: int) -> Iterator[dict[str, Any]]:
        """The items of one worker of several; together they give every item once."""
        places = captures_in_turn(self.items.captures, self.shuffle, self.epoch)[worker::workers]
        if self.shuffle is None:
            for group in self.items.groups(places):
                yield from group
            return
        drawing = random.Random(f"{self.shuffle}/{self.epoch}/{worker}")
        for first in range(0, len(places), self.buffer):
            together = [item for group in self.items.groups(places[first : first + self.buffer]) for item in group]
            drawing.shuffle(together)
            yield from together

    def torch(self) -> Any:
        """The stream as an `IterableDataset` of torch.

        Raises:
            MissingExtra: torch is not installed.
        """
        return _iterable(self)


def captures_in_turn(captures: int, shuffle: int | None, epoch: int) -> list[int]:
    """The order in which captures are read."""
    places = list(range(captures))
    if shuffle is not None:
        random.Random(f"{shuffle}/{epoch}").shuffle(places)
    return places


def _iterable(stream: CaptureStream) -> Any:
    """An instance of a class that torch treats as iterable; a spawned worker creates the class again with this function."""
    data = import_optional("torch.utils.data", "torch", "a stream of samples")

    class SampleStream(data.IterableDataset):  # type: ignore[misc,name-defined]  # reading imports torch only here
        def __init__(self) -> None:
            self.stream = stream

        def set_epoch(self, epoch: int) -> None:
            """Choose another order, as a sampler does; call it before the workers of a loader start."""
            stream.epoch = epoch

        def __iter__(self) -> Iterator[dict[str, Any]]:
            """The items of this worker."""
            worker = data.get_worker_info()
            return stream.part(0, 1) if worker is None else stream.part(worker.id, worker.num_workers)

        def __len__(self) -> int:
            return len(stream)

        def __reduce__(self) -> tuple[Any, ...]:
            return _iterable, (stream,)

    return SampleStream()
