"""Steps that a kill interrupts, that other steps interrupt, and captures that come late: each commit holds its own captures, whole."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from probes.journal.record_writer import RawFile
from probes.journal.scan import scan
from tests.journal.journals import Taker, read

PAGE = 4096
LATE = 1


class KilledError(BaseException):
    """The end of the process."""


class Mortal(RawFile):
    """A file whose process is killed after some pages of a write, as Linux ends a write between two pages.

    Attributes:
        pages: how many pages are still written; None for all.
        wrote: bytes of all writes so far.
    """

    pages: int | None = None

    def write(self, parts, offset):  # type: ignore[no-untyped-def]  # as that of the class above
        if self.pages is None:
            return super().write(parts, offset)
        whole = b"".join(parts)
        until = (offset // PAGE + self.pages) * PAGE - offset
        self.pages -= (offset + len(whole) - 1) // PAGE - offset // PAGE + 1
        super().write([whole[: max(until, 0)]], offset)
        if until < len(whole):
            raise KilledError
        return len(whole)


@pytest.mark.parametrize("recycled", [True, False])
@pytest.mark.parametrize("sizes", [(100_000,), (20_000,) * 5, (120_000,) * 9, (400, 130_000), (30_000,)])
def test_a_step_whose_writer_is_killed_within_a_write_is_absent_or_whole(tmp_path: Path, recycled: bool, sizes: tuple[int, ...]) -> None:
    outcomes = set()
    for pages in range(2 + sum(size // PAGE + 2 for size in sizes)):
        spare, files = tmp_path / f"{pages}.spare", []

        def opener(path: Path, *, create: bool, files: list[Mortal] = files) -> Mortal:
            files.append(Mortal(path, create=create))
            return files[-1]

        if recycled:  # with an earlier life whose records have the same places
            before = Taker(spare)
            for step in range(3):
                for size in sizes:
                    before.add(bytes([10 + step]) * size)
                before.commit()
            before.journal.end(True, "done", {})
        taker = Taker(tmp_path / f"{pages}.journal", spare=spare, opener=opener)
        for size in sizes:
            taker.add(bytes([20]) * size)
        taker.commit()
        files[-1].pages = pages
        try:
            for size in sizes:
                taker.add(bytes([21]) * size)
            taker.journal.commit("train", 1, 101)
        except KilledError:
            pass
        finally:
            files[-1].close()
        last = [bytes([21]) * size for size in sizes]
        found, payloads = read(taker.journal.path)
        assert payloads in ([*taker.acknowledged], [*taker.acknowledged, last]), pages
        outcomes.add(len(found.commits))
    assert outcomes == {1, 2}


def test_captures_of_a_step_that_was_interrupted_stay_with_it_however_many(tmp_path: Path) -> None:
    random = Random(0)
    for trial in range(60):
        taker = Taker(tmp_path / f"{trial}.journal", buffer_bytes=4096)
        expected: list[list[bytes]] = []
        open_steps: list[list[bytes]] = [[]]
        late: list[bytes] = []
        for _ in range(60):
            choice = random.random()
            if choice < 0.5:
                data = random.randbytes(random.choice([0, 1, 7, 900, 3000, 5000, 140_000 if random.random() < 0.1 else 40]))
                is_late = bool(expected) and random.random() < 0.2
                (late if is_late else open_steps[-1]).append(data)
                taker.add(data, LATE if is_late else 0)
            elif choice < 0.65 and len(open_steps) < 4:
                taker.journal.pause(len(open_steps))
                open_steps.append([])
            else:
                step, keep = open_steps.pop(), random.random() < 0.7
                if keep:
                    taker.journal.commit("train", len(expected), len(expected))
                    expected.append([*late, *step])
                    late = []
                else:
                    taker.journal.abort()
                if open_steps:
                    taker.journal.resume(len(open_steps))
                else:
                    open_steps.append([])
            _, payloads = read(taker.journal.path)
            assert payloads == expected, trial
        assert taker.journal.captures == sum(map(len, expected))
        taker.journal.end(True, "done", {})
        assert read(taker.journal.path)[1] == expected
        assert scan(taker.journal.path, boot="another").trusted


def test_a_step_has_more_captures_than_fit_in_memory(tmp_path: Path) -> None:
    taker = Taker(tmp_path / "a.journal", buffer_bytes=4096)
    for number in range(1000):
        taker.add(number.to_bytes(2, "little"))
    taker.journal.pause("outer")
    taker.add(b"inner")
    taker.journal.abort()
    taker.step.pop()
    taker.journal.resume("outer")
    taker.commit({"ids": [1]})
    assert read(taker.journal.path)[1] == taker.acknowledged
