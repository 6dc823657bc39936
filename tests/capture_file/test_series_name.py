import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.capture_file.series_name import SeriesAddress, escape, group_name, parse_group, parse_word
from probes.clock import SeriesKey
from probes.errors import FileRefused

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(names, names.filter(bool), names.filter(bool), st.sampled_from(["", "float16"]))
def test_the_name_of_a_group_identifies_one_series(target: str, leaf: str, phase: str, dtype: str) -> None:
    key = SeriesKey("acts", target, leaf, phase)
    assert parse_group(escape("acts"), group_name(key, dtype)) == SeriesAddress(key, dtype)


@pytest.mark.parametrize("name", ["fc1", "%ff:output", ""])
def test_a_group_with_another_name_is_not_a_series(name: str) -> None:
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
def test_a_word_may_be_a_prefix(word: str, parts: tuple[str | None, ...]) -> None:
    assert parse_word(word) == parts


TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", ".", "..", "%", "%2F", "a/b", "a:b", "x@y", "x~y"])


@given(TEXT, TEXT)
def test_no_two_texts_have_the_same_escaped_form(one: str, two: str) -> None:
    assert (escape(one) == escape(two)) is (one == two)


@given(TEXT, TEXT, TEXT)
def test_a_group_name_identifies_its_series(target: str, leaf: str, phase: str) -> None:
    key = SeriesKey("acts", target, leaf, phase or "train")
    for dtype in ("", "float8_e4m3fn"):
        name = group_name(key, dtype)
        assert parse_group("acts", name) == SeriesAddress(key, dtype)
        assert name not in (".", "..")
        assert "/" not in name
        assert "\0" not in name
