from __future__ import annotations

from collections.abc import Mapping

import pytest

from probes.run_directory.attempts import ListedFile, entry, ranked

Tries = Mapping[str, tuple[int, range]]  # first step and training steps of a file, by its name


class Held:
    """Files that hold one capture of each of their training steps, and some of other phases; none is complete."""

    def __init__(self, tries: Tries, others: Mapping[str, int]) -> None:
        self.tries, self.others = tries, others

    def ranks_of(self, attempt: int, epoch: int, *, notes: bool) -> int:
        return 2

    def is_complete(self, found: ListedFile) -> bool:
        return False

    def captures(self, found: ListedFile) -> int:
        return len(self.tries[found.name][1]) + self.others.get(found.name, 0)

    def captures_before(self, found: ListedFile, step: int) -> int:
        return sum(one < step for one in self.tries[found.name][1])

    def first_step(self, found: ListedFile) -> int:
        return self.tries[found.name][0]


def shown(tries: Tries, others: Mapping[str, int] = {}) -> dict[str, int | None]:
    """The files that count, each with the step before which its steps do."""
    group: dict[int, dict[int, list[ListedFile]]] = {}
    for name in tries:
        found = entry(name)
        assert found is not None
        group.setdefault(found.rank, {})[found.attempt] = [found]
    return {name: one.before for one in ranked(0, group, Held(tries, others)) if one.current for name in one.files}


A = [f"epoch-0000{attempt}.rank-{rank:04d}.h5" for attempt in ("", ".a2", ".a3") for rank in (0, 1)]


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        (
            {A[0]: (0, range(7)), A[1]: (0, range(7)), A[2]: (5, range(5, 9)), A[3]: (5, range(5, 9))},
            {A[0]: 5, A[1]: 5, A[2]: None, A[3]: None},
        ),
        ({A[0]: (0, range(7)), A[1]: (0, range(7)), A[2]: (5, range(5, 20)), A[3]: (4, range(4, 20))}, {A[2]: None, A[3]: None}),
        ({A[0]: (0, range(7)), A[2]: (5, range(5, 20)), A[3]: (5, range(5, 20))}, {A[2]: None, A[3]: None}),
        (
            {A[0]: (0, range(9)), A[2]: (5, range(5, 7)), A[4]: (6, range(6, 12))},
            {A[0]: 5, A[2]: 6, A[4]: None},
        ),
        ({A[0]: (0, range(9)), A[2]: (8, range(8, 9)), A[4]: (3, range(3, 12))}, {A[0]: 3, A[4]: None}),
        ({A[0]: (0, range(9)), A[2]: (0, range(2)), A[4]: (6, range(6, 12))}, {A[0]: 6, A[4]: None}),
        ({A[0]: (0, range(9)), A[2]: (0, range(8)), A[4]: (6, range(6, 12))}, {A[2]: 6, A[4]: None}),
        ({A[0]: (0, range(90)), A[2]: (80, range(80, 83))}, {A[0]: None}),
        ({A[0]: (9, range(9, 12)), A[2]: (4, range(4, 20))}, {A[2]: None}),
    ],
    ids=[
        "all ranks are joined",
        "ranks that state different first steps are not",
        "nor an attempt on fewer ranks",
        "an attempt that continues one that continues another",
        "an older checkpoint",
        "an attempt that did not reach the checkpoint",
        "of two that reached it the later one",
        "a short attempt does not hide a long one",
        "a later beginning has nothing before",
    ],
)
def test_steps_before_the_first_are_of_the_attempts_that_hold_most_of_them(tries: Tries, expected: dict[str, int | None]) -> None:
    assert shown(tries) == expected


def test_an_attempt_that_continues_another_is_not_hidden_by_captures_of_other_phases() -> None:
    tries = {A[0]: (0, range(9)), A[2]: (7, range(7, 20))}
    assert shown(tries, {A[0]: 500, A[2]: 100}) == {A[0]: 7, A[2]: None}
    assert shown({A[0]: (0, range(9)), A[2]: (7, range(7, 8))}, {A[2]: 100}) == {A[0]: None}
    assert shown({A[0]: (0, range(9)), A[2]: (7, range(7, 9))}, {A[0]: 3, A[2]: 2}) == {A[0]: None}
    assert shown({A[0]: (0, range(9)), A[2]: (0, range(12))}, {A[0]: 500, A[2]: 100}) == {A[0]: None}
