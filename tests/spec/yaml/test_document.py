from __future__ import annotations

import pytest

from probes.spec.yaml.document import kind_of, plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-7", -7),
        ("+3", 3),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("1.6e-2", 0.016),
        ("-2E+2", -200.0),
        ("true", True),
        ("FALSE", False),
    ],
)
def test_numbers_and_booleans_are_read_as_such(text: str, value: object) -> None:
    found = plain(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["yes", "1:30", "1_000", "1.2.3", "v1", "-", ".", "1e", "e5", "tRuE", "0.1.weight", "²", "fc1", "--1", "5..10"]
)
def test_every_scalar_of_another_form_is_a_text(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize("text", ["010", "0x1f", "0o17", ".nan", ".inf", "-.INF", "9" * 19, "1e999", "0." + "1" * 40])
def test_ambiguous_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"`|number"):
        plain(text)


def test_octal_is_offered_only_for_octal_numbers() -> None:
    with pytest.raises(ValueError, match="8 if octal is meant"):
        plain("010")
    with pytest.raises(ValueError, match=r"write 9$"):
        plain("09")


def test_kinds_have_names() -> None:
    assert [kind_of(value) for value in (True, 1, 1.0, "", [], {})] == [
        "a boolean",
        "a whole number",
        "a number",
        "a text",
        "a list",
        "a mapping",
    ]
