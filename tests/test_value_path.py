from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.value_path import HOOK_OF, NATURAL, ROOTS, Reference, ValuePath, quoted, split_keys


@pytest.mark.parametrize(
    ("text", "root", "keys"),
    [
        ("output", "output", ()),
        ("output.1", "output", ("1",)),
        ("output.hidden_states.*", "output", ("hidden_states", "*")),
        ('output."a.b".c', "output", ("a.b", "c")),
        (r'output."say \"hi\""', "output", ('say "hi"',)),
        ("input.0", "input", ("0",)),
        ("grad_input_total.x", "grad_input_total", ("x",)),
    ],
)
def test_value_paths_are_read(text: str, root: str, keys: tuple[str, ...]) -> None:
    assert ValuePath.parse(text) == ValuePath(root, keys)


@pytest.mark.parametrize("text", ["", "outputs", "output.", "output..a", "output[0]", 'output."a', 'output."a"b', ".output"])
def test_a_wrong_value_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        ValuePath.parse(text)


def test_the_message_about_brackets_shows_the_right_path() -> None:
    with pytest.raises(ValueError, match=r"`output\.0`"):
        ValuePath.parse("output[0]")


def test_a_reference_is_split_at_its_last_colon() -> None:
    assert Reference.parse("a:b:output.0") == Reference("a:b", ValuePath("output", ("0",)))
    assert Reference.parse(":input").module == ""


def test_the_message_about_a_reference_without_a_value_shows_one() -> None:
    with pytest.raises(ValueError, match="write `fc1:output`"):
        Reference.parse("fc1")


def test_every_root_has_a_hook_and_every_hook_a_natural_root() -> None:
    assert set(HOOK_OF) == set(ROOTS)
    assert all(HOOK_OF[root] == hook for hook, root in NATURAL.items())


@given(st.lists(st.text()))
def test_a_path_is_written_as_it_is_read(keys: list[str]) -> None:
    path = ValuePath("output", tuple(keys))
    assert ValuePath.parse(str(path)) == path


@given(st.lists(st.text("ab_0", min_size=1), min_size=1))
def test_plain_keys_come_back_as_they_were_joined(keys: list[str]) -> None:
    assert split_keys(".".join(keys)) == keys


def test_a_key_that_no_file_can_hold_is_named_by_its_escapes() -> None:
    assert quoted("\ud800") == '"\\\\ud800"'
    assert split_keys(quoted("\ud800")) == ["\\ud800"]
