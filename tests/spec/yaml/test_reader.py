from __future__ import annotations

import pytest

from probes.errors import SpecError
from probes.spec.yaml.document import Document
from probes.spec.yaml.reader import MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_SCALAR, read


def load(text: str) -> Document:
    return read(text.encode(), "a.yaml")


def problems(text: str | bytes) -> list[tuple[str, int, int]]:
    with pytest.raises(SpecError) as caught:
        read(text if isinstance(text, bytes) else text.encode(), "a.yaml")
    return [(problem.code, problem.line, problem.column) for problem in caught.value.problems]


def test_plain_data_is_read_as_data() -> None:
    data = load('a: 1\nb: [x, 2.5, true, "3"]\nc: {d: -7}\n').data
    assert data == {"a": 1, "b": ["x", 2.5, True, "3"], "c": {"d": -7}}


def test_keys_and_values_have_positions() -> None:
    document = load("a:\n  b: [x, yy]\n")
    key, value = document.at(("a", "b"), key=True), document.at(("a", "b", 1))
    assert key is not None
    assert value is not None
    assert (key.line, key.column, key.width) == (2, 3, 1)
    assert (value.line, value.column, value.width, value.source) == (2, 10, 2, "  b: [x, yy]")


def test_a_path_without_a_place_has_the_place_of_its_parent() -> None:
    document = load("a:\n  b: 1\n")
    assert document.at(("a", "c", "d")) == document.at(("a",), key=True)


def test_columns_count_characters() -> None:
    mark = load("é: {ü: x}\n").at(("é", "ü"))
    assert mark is not None
    assert mark.column == 8


def test_windows_line_ends_are_not_part_of_a_line() -> None:
    mark = load("a: 1\r\nb: 2\r\n").at(("b",))
    assert mark is not None
    assert mark.source == "b: 2"


def test_a_byte_order_mark_is_reported() -> None:
    assert problems(b"\xef\xbb\xbfa: 1\n") == [("invisible-character", 1, 1)]


@pytest.mark.parametrize(
    "text", ["a: *b\n", "a: &b 1\n", "a: !!str 1\n", "a: !b 1\n", "<<: {a: 1}\n", "? [a]\n: 1\n", "---\na: 1\n---\nb: 1\n"]
)
def test_tags_anchors_and_aliases_are_refused(text: str) -> None:
    assert len(problems(text)) == 1


def test_a_quoted_merge_key_is_a_key() -> None:
    assert load('"<<": 1\n').data == {"<<": 1}


def test_all_problems_of_a_document_are_listed() -> None:
    assert problems("a: ~\nb: no\nc: 010\na: 2\n1: x\n") == [
        ("null", 1, 4),
        ("looks-boolean", 2, 4),
        ("bad-number", 3, 4),
        ("duplicate-key", 4, 1),
        ("key-not-text", 5, 1),
    ]


def test_axes_may_be_called_y_and_n() -> None:
    assert load("dims: [n, y, x]\n").data == {"dims": ["n", "y", "x"]}


def test_block_texts_are_texts() -> None:
    assert load("a: |\n  1\nb: >\n  no\n").data == {"a": "1\n", "b": "no\n"}


def test_a_file_has_at_most_one_mebibyte() -> None:
    fitting = b"# " + b"x" * (MAX_BYTES - 8) + b"\na: 1\n"
    assert read(fitting[:MAX_BYTES], "a.yaml")
    assert problems(fitting + b"#" * 100)[0][0] == "too-large"


def test_nesting_is_limited() -> None:
    assert load("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    assert problems("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)[0][0] == "too-deep"


def test_a_hundred_thousand_brackets_are_refused_at_once() -> None:
    assert problems("a: " + "[" * 100_000)[0][0] == "too-deep"


def test_nodes_are_counted() -> None:
    assert problems("a: [" + "1," * MAX_NODES + "]")[0][0] == "too-many-nodes"


def test_the_length_of_texts_is_limited() -> None:
    assert load("a: " + "x" * MAX_SCALAR)
    assert problems("a: " + "x" * (MAX_SCALAR + 1))[0][0] == "scalar-too-long"


@pytest.mark.parametrize("character", ["\u202e", "\u200b", "\ufeff", "\u2028", "\x00", "\x7f", "\x85"])
def test_invisible_characters_are_refused(character: str) -> None:
    assert problems(f'a: "b{character}c"\n')[0] == ("invisible-character", 1, 6)


@pytest.mark.parametrize("escape", [r"\u202e", r"\0", r"\N", r"\_", r"\x07"])
def test_escapes_of_invisible_characters_are_refused(escape: str) -> None:
    assert problems(f'a: "b{escape}c"\n')[0] == ("invisible-character", 1, 4)


def test_letters_of_other_scripts_are_allowed() -> None:
    assert load('a: "é 形　状 \\t\\n"\n').data == {"a": "é 形　状 \t\n"}


def test_a_tab_within_a_line_is_harmless() -> None:
    assert load("a: 1\t# one\n").data == {"a": 1}
