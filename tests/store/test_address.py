import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.clock import SeriesKey
from probes.errors import FileRefused
from probes.store.address import Address, parse_group, parse_word
from probes.store.names import escape, group_name

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(names, names.filter(bool), names.filter(bool), st.sampled_from(["", "float16"]))
def test_the_name_of_a_group_stands_for_one_series(target: str, leaf: str, phase: str, dtype: str) -> None:
    key = SeriesKey("acts", target, leaf, phase)
    assert parse_group(escape("acts"), group_name(key, dtype)) == Address(key, dtype)


@pytest.mark.parametrize("name", ["fc1", "%ff:output", ""])
def test_a_group_that_is_called_otherwise_is_no_series(name: str) -> None:
    with pytest.raises(FileRefused) as refused:
        parse_group("acts", name)
    assert refused.value.code == "not-a-capture-file"


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("acts", ("acts", None, None, None, None)),
        ("acts/", ("acts", "", None, None, None)),
        ("acts/fc1", ("acts", "fc1", None, None, None)),
        ("acts/a:b:output.0@eval~float16", ("acts", "a:b", "output.0", "eval", "float16")),
    ],
)
def test_a_word_may_leave_out_what_follows(word: str, parts: tuple[str | None, ...]) -> None:
    assert parse_word(word) == parts
