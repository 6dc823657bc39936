from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.errors import SpecError
from probes.spec import load_spec
from probes.spec.when import Range, When


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        ({"every": 10, "first": 3}, [0, 1, 2, 10, 20, 30]),
        ({"first": 1}, [0]),
        ({"from": 5, "until": 8}, [5, 6, 7]),
        ({"from": 5, "every": 10, "first": 2}, [5, 6, 15, 25, 35]),
        ({"at": [3, 0]}, [0, 3]),
        ({"from": 30}, [30, 31, 32, 33, 34, 35]),
        ({"until": 2}, [0, 1]),
        ({"every": 1}, list(range(36))),
        ({"from": 2, "until": 8, "every": 2}, [2, 4, 6]),
    ],
)
def test_a_range_selects_numbers(keys: dict[str, object], chosen: list[int]) -> None:
    found = Range.model_validate(keys)
    assert [number for number in range(36) if found.includes(number)] == chosen


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"at": []},
        {"at": [1], "every": 2},
        {"every": 1, "first": 2},
        {"from": 3, "until": 3},
        {"every": 0},
        {"first": 0},
        {"from": -1},
        {"at": [-1]},
        {"every": "10"},
        {"every": True},
        {"every": 2.0},
        {"evry": 2},
        {"from_": 2},
    ],
)
def test_a_wrong_range_is_refused(keys: dict[str, object]) -> None:
    probe = {"hook": "forward", "modules": ["a"], "when": {"steps": keys}}
    with pytest.raises(SpecError):
        load_spec({"version": 1, "probes": {"p": probe}})


@given(
    st.integers(0, 50),
    st.none() | st.integers(51, 90),
    st.none() | st.integers(2, 7),
    st.none() | st.integers(1, 5),
    st.integers(0, 100),
)
def test_a_range_is_its_definition(start: int, until: int | None, every: int | None, first: int | None, number: int) -> None:
    found = Range(**{"from": start, "until": until, "every": every, "first": first})  # type: ignore[arg-type]  # of several kinds
    k = number - start
    inside = k >= 0 and (until is None or number < until)
    chosen = (first is None and every is None) or (first is not None and k < first) or (every is not None and k % every == 0)
    assert found.includes(number) == (inside and chosen)


def test_a_schedule_without_keys_means_all_of_training() -> None:
    when = When()
    assert when.covers(7, "train", 3)
    assert not when.covers(7, "eval", 3)
    assert when.steps is None
    assert when.includes_call(4, 5)


def test_the_keys_of_a_schedule_are_joined_by_and() -> None:
    when = When.model_validate(
        {
            "phases": ["eval"],
            "epochs": {"at": [1]},
            "ranks": {"at": [0]},
            "steps": {"first": 1},
            "microsteps": {"first": 1},
            "calls": {"at": [1]},
        }
    )
    assert when.covers(1, "eval", 0)
    assert when.covers(1, None, 0)
    assert not when.covers(1, "train", 0)
    assert not when.covers(2, "eval", 0)
    assert not when.covers(1, "eval", 1)
    assert when.steps is not None
    assert [when.steps.includes(step) for step in (0, 1)] == [True, False]
    assert [when.includes_call(*call) for call in ((0, 1), (0, 0), (1, 1))] == [True, False, False]


@pytest.mark.parametrize(
    ("keys", "everything"),
    [({"from": 0}, True), ({"every": 1}, True), ({"from": 1}, False), ({"every": 2}, False), ({"at": [0]}, False), ({"first": 1}, False)],
)
def test_a_range_of_every_number_cancels_a_default(keys: dict[str, object], everything: bool) -> None:
    assert Range.model_validate(keys).is_all == everything


@pytest.mark.parametrize("phases", [[], ["all"], [""], ["eval", "eval"], "train"])
def test_wrong_phases_are_refused(phases: object) -> None:
    probe = {"hook": "forward", "modules": ["a"], "when": {"phases": phases}}
    with pytest.raises(SpecError):
        load_spec({"version": 1, "probes": {"p": probe}})
