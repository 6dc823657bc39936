from __future__ import annotations

import time

import pytest

from probes.errors import SpecError
from probes.spec.yaml.hints import cause, missing
from probes.spec.yaml.reader import read


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("version:1\nprobes: {}\n", 1, "write a space after the colon"),
        ("a: 1\n\n# why\nb:2\nc: 3\n", 4, "write a space after the colon"),
        ("a: {b:c, d: 1}\n", 1, "write a space after the colon: b: c"),
        ("a: [{b,c}.d]\n", 1, 'must be quoted: "{b,c}.d"'),
        ("a: [x, [b].d]\n", 1, 'must be quoted: "[b].d"'),
        ("a: [{0..3}]\n", 1, "starts with `{` or `?` must be quoted"),
        ("a: [?.b]\n", 1, "starts with `{` or `?` must be quoted"),
        ("a:\nb: 1\n", 1, "what belongs to `a` must be indented further"),
        ("a:\n", 1, "write a value, or remove the key"),
        ('a: "\\d"\n', 1, "write two backslashes"),
        ("a: [b]]\n", 1, "there is one `]` too many"),
        ("a: 1\rb: 2\r", 1, "LF or CRLF"),
    ],
)
def test_the_hint_of_a_yaml_error_names_its_likely_cause(text: str, line: int, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(text.encode(), "a.yaml")
    problem = caught.value.problems[0]
    assert problem.line == line
    assert hint in problem.hint


def test_an_unknown_yaml_error_has_the_code_not_yaml() -> None:
    assert cause("something new", "a: b", 3) == ("not-yaml", "")
    assert missing("", "", 0, "") == "write a value, or remove the key"


def test_a_long_line_of_braces_takes_no_time() -> None:
    begun = time.process_time()
    for text in ("a: [" + "{b}" * 200_000 + ".c]", "a: [x" + "}" * 500_000 + "]"):
        with pytest.raises(SpecError):
            read(text.encode(), "a.yaml")
    assert time.process_time() - begun < 30  # a search that is not linear takes hours
