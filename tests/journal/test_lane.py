"""The short way into a journal: what it takes, what it leaves to the others, and that nobody comes in between."""

from __future__ import annotations

import gc
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from probes.clock import SeriesKey
from probes.journal.lane import Lane
from probes.journal.writer import LARGE_BYTES, Journal
from tests.journal.journals import HEAD, read

LIKE = torch.arange(6.0).reshape(2, 3)


def begun(path: Path, like: Tensor = LIKE, buffer_bytes: int = 1 << 20) -> tuple[Journal, Lane]:
    """A journal, and its lane for float32 tensors like one."""
    journal = Journal.create(path, HEAD, buffer_bytes=buffer_bytes)
    number = journal.descriptor(SeriesKey("acts", "layer", "output", "train"), "uint8", (like.nbytes,), None, {}, {})
    lane = journal.lane(number, like)
    assert lane is not None
    return journal, lane


def raw(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


def test_the_bytes_are_copied_before_it_returns(tmp_path: Path) -> None:
    journal, lane = begun(tmp_path / "a.journal")
    first, second = LIKE.clone(), LIKE + 1
    assert lane(first, 0, 0, 0, 0)
    first.fill_(-1)
    assert lane(second, 0, 0, 1, 0)
    assert lane(first, 0, 0, 2, 0), "the same place in memory, another content"
    journal.commit("train", 0, 0)
    found, payloads = read(journal.path)
    assert payloads == [[raw(LIKE), raw(LIKE + 1), raw(torch.full_like(LIKE, -1))]]
    assert found.captures["call"].tolist() == [0, 1, 2]
    assert journal.captures == 3


def nested() -> Tensor:
    return torch.nested.nested_tensor([torch.zeros(3), torch.zeros(3)], layout=torch.jagged)


def negative() -> Tensor:
    """One number whose sign is a bit of the tensor, not of its memory; it is contiguous, as every single number is."""
    value = torch.complex(torch.ones(1), torch.ones(1)).conj().imag
    assert value.is_neg()
    assert value.is_contiguous()
    return value


class Own(Tensor):
    pass


OTHERS: dict[str, Callable[[], Tensor]] = {
    "another shape": lambda: LIKE.reshape(3, 2),
    "another rank": lambda: LIKE.reshape(6),
    "another dtype of the same size": lambda: LIKE.view(torch.int32),
    "not contiguous": lambda: LIKE.reshape(3, 2).t(),
    "no memory": lambda: torch.empty(2, 3, device="meta"),
    "storage that was freed": lambda: freed(LIKE.clone()),
    "sparse": LIKE.to_sparse,
    "nested": nested,
    "a subclass": lambda: LIKE.clone().as_subclass(Own),
}


def freed(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize("kind", OTHERS)
def test_a_tensor_unlike_the_one_before_is_left_to_others(kind: str, tmp_path: Path) -> None:
    journal, lane = begun(tmp_path / "a.journal")
    assert not lane(OTHERS[kind](), 0, 0, 0, 0)
    assert journal.captures == 0


def test_a_sign_that_is_not_in_memory_is_left_to_others(tmp_path: Path) -> None:
    journal, lane = begun(tmp_path / "a.journal", torch.ones(1))
    assert not lane(negative(), 0, 0, 0, 0)
    assert journal.captures == 0


def test_a_tensor_within_vmap_is_left_to_others(tmp_path: Path) -> None:
    journal, lane = begun(tmp_path / "a.journal")
    taken = []

    def look(row: Tensor) -> Tensor:
        taken.append(lane(row, 0, 0, 0, 0))
        return row

    torch.func.vmap(look)(torch.zeros(4, 2, 3))
    assert taken == [False]
    assert journal.captures == 0


def test_where_there_is_no_room_it_says_so_and_stores_nothing(tmp_path: Path) -> None:
    like = torch.zeros(500)
    journal, lane = begun(tmp_path / "a.journal", like, buffer_bytes=4096)
    assert [lane(like, 0, 0, call, 0) for call in range(3)] == [True, True, False]
    assert journal.captures == 2


def test_a_number_that_does_not_fit_leaves_no_place_behind(tmp_path: Path) -> None:
    journal, lane = begun(tmp_path / "a.journal")
    with pytest.raises(struct.error):
        lane(LIKE, 1 << 32, 0, 0, 0)
    with pytest.raises(struct.error):
        journal.add(0, 1 << 32, 0, 0, 0, LIKE.data_ptr(), LIKE.nbytes)
    assert journal.captures == 0
    assert lane(LIKE, 7, 0, 0, 0)
    journal.commit("train", 7, 7)
    found, payloads = read(journal.path)
    assert payloads == [[raw(LIKE)]]
    assert found.captures["step"].tolist() == [7]


def test_it_waits_for_its_turn(tmp_path: Path) -> None:
    journal, lane = begun(tmp_path / "a.journal")
    journal.turns.held += 1
    assert not lane(LIKE, 0, 0, 0, 0)
    journal.turns.held -= 1
    assert lane(LIKE, 0, 0, 0, 0)


def test_there_is_none_for_what_is_large_or_empty_or_traced(tmp_path: Path) -> None:
    journal, _ = begun(tmp_path / "a.journal")
    assert journal.lane(0, torch.zeros(LARGE_BYTES // 4)) is None
    assert journal.lane(0, torch.zeros(0)) is None
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        traced = journal.lane(0, LIKE)
    finally:
        sys.settrace(before)
    assert traced is None


class Yielding:
    """A cycle whose finalizer lets another thread run: before Python 3.12 wherever an object is made that is collected."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def busy_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(3)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("busy_collector")
def test_threads_neither_tear_nor_mix_what_they_capture(tmp_path: Path) -> None:
    like, times = torch.zeros(250), 3000
    journal = Journal.create(tmp_path / "a.journal", HEAD, buffer_bytes=64 << 10)
    refused = []

    def work(mark: int) -> None:
        number = journal.descriptor(SeriesKey("acts", f"layer{mark}", "output", "train"), "uint8", (like.nbytes,), None, {}, {})
        lane = journal.lane(number, like)
        assert lane is not None
        for call in range(times):
            tensor = torch.full_like(like, mark * times + call)
            Yielding()
            if not lane(tensor, 0, mark, call, 0):
                refused.append(mark)
                journal.add(number, 0, mark, call, 0, tensor.data_ptr(), tensor.nbytes)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    journal.commit("train", 0, 0)
    found, (payloads,) = read(journal.path)
    assert len(refused) < 4 * times, "the short way was never gone"
    assert len(payloads) == 4 * times
    for row, payload in zip(found.captures, payloads, strict=True):
        wanted = float(int(row["microstep"]) * times + int(row["call"]))
        assert payload == raw(torch.full_like(like, wanted))
