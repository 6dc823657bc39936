from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.module_glob import GlobError, ModuleGlob

GPT = ["", "transformer", "transformer.wte", "transformer.h", "lm_head"] + [
    f"transformer.h.{block}{part}"
    for block in range(12)
    for part in ("", ".ln_1", ".attn", ".attn.c_proj", ".attn.attn_dropout", ".mlp", ".mlp.c_proj")
]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("", 1),
        ("*", 2),
        ("transformer.h", 1),
        ("transformer.h.*", 12),
        ("transformer.h.**", 84),
        ("**.mlp", 12),
        ("**.c_proj", 24),
        ("**.attn*", 24),
        ("transformer.h.1*", 3),
        ("transformer.h.?", 10),
        ("transformer.h.{8..11}.mlp", 4),
        ("**.{ln_1,mlp}", 24),
        ("h.*", 0),
        ("**", 88),
        ("transformer.**.mlp", 12),
        ("TRANSFORMER", 0),
    ],
)
def test_globs_match_modules_of_a_model(pattern: str, count: int) -> None:
    glob = ModuleGlob(pattern)
    assert sum(glob.matches(path) for path in GPT) == count


def test_two_stars_in_the_middle_match_zero_levels_too() -> None:
    assert ModuleGlob("a.**.b").matches("a.b")
    assert ModuleGlob("**.a").matches("a")


def test_two_stars_at_the_end_match_at_least_one_level() -> None:
    assert not ModuleGlob("a.**").matches("a")
    assert ModuleGlob("a.**").matches("a.b.c")


def test_a_backslash_quotes() -> None:
    assert ModuleGlob(r"a\*").matches("a*")
    assert not ModuleGlob(r"a\*").matches("ab")
    assert ModuleGlob(r"a\*").is_exact


@pytest.mark.parametrize(("pattern", "exact"), [("a.b", True), ("", True), ("a.*", False), ("{a,b}", False), ("a?", False), ("**", False)])
def test_exact_paths_are_distinguished_from_globs(pattern: str, exact: bool) -> None:
    assert ModuleGlob(pattern).is_exact == exact


def test_an_exact_glob_has_its_path() -> None:
    assert ModuleGlob(r"a.b\?").exact == "a.b?"


@pytest.mark.parametrize(
    ("pattern", "offset"),
    [
        ("a..b", 2),
        (".a", 0),
        ("a.", 2),
        ("a.{b", 2),
        ("a}b", 1),
        ("{3..1}", 0),
        ("{1..x}", 0),
        ("{a.b}", 0),
        ("{0..5000}", 0),
        ("{00..11}", 0),
        (r"a{b\},c}", 1),
        ("a\\", 1),
        ("a.b**", 3),
    ],
)
def test_a_wrong_glob_is_refused_at_its_place(pattern: str, offset: int) -> None:
    with pytest.raises(GlobError) as caught:
        ModuleGlob(pattern)
    assert caught.value.offset == offset


def test_a_glob_has_a_limited_length_and_number_of_alternatives() -> None:
    with pytest.raises(GlobError):
        ModuleGlob("a" * 2000)
    with pytest.raises(GlobError):
        ModuleGlob("{a,b}" * 11)


def test_no_glob_is_slow() -> None:
    glob, path = ModuleGlob(".".join(["**", "*a*a*a*a*a*b"] * 20)), ".".join(["a" * 60] * 60)
    began = time.process_time()
    assert not glob.matches(path)
    assert time.process_time() - began < 30  # tried piece by piece it takes longer than there is time


@given(st.text("ab*?", max_size=8).filter(lambda text: "**" not in text and text), st.text("ab", min_size=1, max_size=8))
def test_within_a_level_a_glob_matches_like_fnmatch(pattern: str, name: str) -> None:
    assert ModuleGlob(pattern).matches(name) == fnmatchcase(name, pattern)
