"""Formatting a spec loses none of its values and comments; where it would, the file is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.errors import MissingExtra, SpecError
from probes.spec import load_text
from probes.spec.format import formatted
from probes.spec.spec_files import preset_folder
from probes.spec.yaml.reader import read
from tests.pages import ROOT
from tests.regenerate import SPECS

VALID = sorted((SPECS / "valid").glob("*.yaml"))
OURS = [*sorted(preset_folder().glob("*.yaml")), *sorted((ROOT / "examples").glob("*/*.yaml"))]


def fmt(text: str) -> str:
    return formatted(text.encode(), "a.yaml").decode()


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_formatted_spec_resolves_to_the_same_and_formatting_it_again_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    after = formatted(before, path.name)
    assert load_text(after, path.name, path.parent).resolved == load_text(before, path.name, path.parent).resolved
    assert formatted(after, path.name) == after


@pytest.mark.parametrize("path", OURS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_presets_and_examples_are_formatted(path: Path) -> None:
    assert formatted(path.read_bytes(), path.name) == path.read_bytes()


ODD = """\
# yaml-language-server: $schema=probe-spec.v1.json
# a license

# about the version
version: 1
probes:
    # before b
    b:   # behind b
        transforms:
          # before the first
          - kind: stats   # behind stats
          -   # behind the dash
            order: l1
            kind: norm
          - {kind: cast,
             dtype: float16}   # at its end
        modules: [ 'a' ,
           "b.c",
           '**.x' ]   # behind brackets
        hook: forward
        # at the end of b

    # at the end of probes
    c: {modules: [fc1], hook: forward, about: "folded
        over lines"} # behind c
    d:
        about: |
            two lines
              # no comment
            end
        hook:
          forward
        modules:
        - a
        - b  # behind an item


# before the name
name: x
# the end
"""
FORMATTED = """\
# yaml-language-server: $schema=probe-spec.v1.json
# a license

# about the version
version: 1
probes:
  # before b
  b:     # behind b
    transforms:
      # before the first
      - kind: stats       # behind stats
      # behind the dash
      - order: l1
        kind: norm
      - {kind: cast, dtype: float16}  # at its end
    modules: ['a', "b.c", '**.x']  # behind brackets
    hook: forward
    # at the end of b

  # at the end of probes
  c: {modules: [fc1], hook: forward, about: "folded over lines"}  # behind c
  d:
    about: |
      two lines
        # no comment
      end
    hook: forward
    modules:
      - a
      - b    # behind an item

# before the name
name: x
# the end
"""


def test_comments_stay_with_the_lines_that_they_are_about() -> None:
    assert fmt(ODD) == FORMATTED
    assert re.findall(r"# .*", fmt(ODD)) == re.findall(r"# .*", ODD)
    assert fmt(FORMATTED) == FORMATTED


def test_keys_quotes_and_brackets_stay_as_the_author_wrote_them() -> None:
    text = "probes:\n  z: {modules: [b], hook: forward}\n  a: {modules: ['a', \"b\"], hook: forward}\nversion: 1\n"
    assert fmt(text) == text
    assert fmt("about: 'it''s \"so\"'\nversion: 1\n") == "about: 'it''s \"so\"'\nversion: 1\n"
    assert fmt("about: >-\n      one\n      two\n\n\nversion: 1\n") == "about: >-\n  one\n  two\n\n\nversion: 1\n"
    assert fmt("transforms: [{kind: stats}]\n") == "transforms: [{kind: stats}]\n"


def test_brackets_that_do_not_fit_on_a_line_are_broken_into_lines() -> None:
    long = ", ".join(f"features.block{index}" for index in range(8))
    lines = fmt(f"version: 1\nprobes: {{acts: {{modules: [{long}], hook: forward}}}}\n").splitlines()
    assert lines[1:5] == ["probes:", "  acts:", "    modules:", "      - features.block0"]
    assert lines[-1] == "    hook: forward"


def test_a_long_text_stays_on_its_line() -> None:
    text = f"about: {'word ' * 40}end\nversion: 1\n"
    assert fmt(text) == text


def test_a_comment_that_cannot_be_kept_refuses_the_file() -> None:
    with pytest.raises(SpecError, match=r"not-formatted.*`# why`") as caught:
        fmt("version: 1\nmodules: [a, # why\n  b]\n")
    assert caught.value.problems[0].line == 2


def test_a_file_that_is_not_yaml_is_refused_and_yaml_that_is_not_a_spec_is_formatted() -> None:
    with pytest.raises(SpecError, match="not-yaml"):
        fmt("version: [1\n")
    with pytest.raises(SpecError, match="duplicate-key"):
        fmt("version: 1\nversion: 1\n")
    assert fmt("unknown:   1\nversion: 1\n") == "unknown: 1\nversion: 1\n"


def test_without_the_package_one_sentence_states_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    with pytest.raises(MissingExtra, match=r"pip install \"torch-probes\[fmt\]\""):
        fmt("version: 1\n")


INSERTED = ["# note", "\n", "\n\n# note\n", "  # note\n", " ", "    ", "\n# a: b\n", " # 'x\n"]


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from([*VALID, *OURS]), places=st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(INSERTED)), max_size=6))
def test_formatting_keeps_all_comments_of_a_file_with_any_spaces(path: Path, places: list[tuple[int, str]]) -> None:
    lines = path.read_text("utf-8").split("\n")
    for place, text in places:
        index = place % len(lines)
        lines[index] = lines[index] + " " + text if text.startswith("#") else lines[index] + text
    text = "\n".join(lines)
    try:
        data = read(text.encode(), path.name).data
        after = fmt(text)
    except SpecError:
        return
    assert read(after.encode(), path.name).data == data
    assert fmt(after) == after
    assert after.count("# note") == text.count("# note")
