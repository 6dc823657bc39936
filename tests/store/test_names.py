"""Names of groups and files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.clock import SeriesKey
from probes.errors import UsageError
from probes.store.address import Address, parse_group
from probes.store.names import Stem, escape, group_name, parse_stem

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", ".", "..", "%", "%2F", "a/b", "a:b", "x@y", "x~y"])


@given(TEXT, TEXT)
def test_no_two_texts_have_the_same_escaped_form(one: str, two: str) -> None:
    assert (escape(one) == escape(two)) is (one == two)


@given(TEXT, TEXT, TEXT)
def test_a_group_name_says_which_series_it_is(target: str, leaf: str, phase: str) -> None:
    key = SeriesKey("acts", target, leaf, phase or "train")
    for dtype in ("", "float8_e4m3fn"):
        name = group_name(key, dtype)
        assert parse_group("acts", name) == Address(key, dtype)
        assert name not in (".", "..")
        assert "/" not in name
        assert "\0" not in name


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("epoch-0003.journal", Stem(3)),
        ("epoch-12345.h5", Stem(12345)),
        ("epoch-0003.a2.h5", Stem(3, attempt=2)),
        ("epoch-0003.s0001.journal", Stem(3, segment=1)),
        ("epoch-0003.a2.s0010.rank-0004.h5", Stem(3, 2, 10, 4)),
        ("epoch-0000.rank-0000.h5", Stem(0, rank=0)),
    ],
)
def test_a_file_name_is_read_and_written(name: str, stem: Stem) -> None:
    assert parse_stem(name) == stem
    assert f"{stem}.{name.rpartition('.')[2]}" == name


@pytest.mark.parametrize(
    "name", ["spare.journal", "epoch-3.journal", "epoch-0003.h5.tmp", "epoch-0003.rank-0001.a2.h5", "../epoch-0003.h5", "epoch-0003.h5\n"]
)
def test_any_other_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a journal"):
        parse_stem(name)
