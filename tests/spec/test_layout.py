"""One layout for a spec: nothing of what it means, and no comment, is lost on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.errors import SpecError
from probes.spec import load_text
from probes.spec.compose import preset_folder
from probes.spec.layout import laid_out
from probes.spec.yaml.reader import read
from tests.pages import ROOT
from tests.regenerate import SPECS

VALID = sorted((SPECS / "valid").glob("*.yaml"))
OURS = [*sorted(preset_folder().glob("*.yaml")), *sorted((ROOT / "examples").glob("*/*.yaml"))]


def lay(text: str) -> str:
    return laid_out(text.encode(), "a.yaml").decode()


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_spec_means_what_it_meant_and_a_second_time_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    after = laid_out(before, path.name)
    assert load_text(after, path.name, path.parent).resolved == load_text(before, path.name, path.parent).resolved
    assert laid_out(after, path.name) == after


@pytest.mark.parametrize("path", OURS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_our_own_specs_are_laid_out_so(path: Path) -> None:
    assert laid_out(path.read_bytes(), path.name) == path.read_bytes()


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
          - {kind: cast, # within
             dtype: float16}   # at its end
        modules: [ 'a' ,
           "b.c", # why
           '**.x' ]
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
LAID = """\
# yaml-language-server: $schema=probe-spec.v1.json
# a license

# about the version
version: 1

# before the name
name: x
probes:
  # before b
  b:     # behind b
    hook: forward
    # at the end of b
    modules:
      - "a"
      - "b.c"     # why
      - "**.x"
    transforms:
      # before the first
      - kind: stats       # behind stats
      - kind: norm  # behind the dash
        order: l1
      - kind: cast       # within
        dtype: float16         # at its end

  # at the end of probes
  c: {about: "folded over lines", hook: forward, modules: [fc1]}  # behind c
  d:
    about: |
      two lines
        # no comment
      end
    hook: forward
    modules:
      - a
      - b    # behind an item
# the end
"""


def test_comments_stay_with_what_they_are_about() -> None:
    assert lay(ODD) == LAID
    assert sorted(re.findall(r"# .*", lay(ODD))) == sorted(re.findall(r"# .*", ODD))
    assert lay(lay(ODD)) == lay(ODD)


def test_keys_stand_in_the_order_of_the_reference_and_names_in_the_authors() -> None:
    text = (
        "probes:\n  z: {modules: [b], hook: forward}\n  a: {modules: [a], when: {steps: {until: 3, from: 1}}, hook: forward}\nversion: 1\n"
    )
    assert lay(text) == (
        "version: 1\nprobes:\n  z: {hook: forward, modules: [b]}\n  a: {hook: forward, modules: [a], when: {steps: {from: 1, until: 3}}}\n"
    )


def test_what_does_not_fit_on_a_line_is_written_below() -> None:
    long = ", ".join(f"features.block{index}" for index in range(8))
    assert lay(f"version: 1\nprobes: {{acts: {{modules: [{long}], hook: forward}}}}\n").splitlines()[1:5] == [
        "probes:",
        "  acts:",
        "    hook: forward",
        "    modules:",
    ]


def test_a_text_keeps_its_own_way_of_being_written_where_it_can() -> None:
    assert lay("about: 'it''s \"so\"'\nversion: 1\n") == "version: 1\nabout: 'it''s \"so\"'\n"
    assert lay("about: 'so'\nversion: 1\n") == 'version: 1\nabout: "so"\n'
    assert lay("about: >-\n      one\n      two\n\n\nversion: 1\n") == "version: 1\nabout: >-\n  one\n  two\n"
    assert lay("about: |+\n  kept\n\nversion: 1\n") == 'version: 1\nabout: "kept\\n\\n"\n'


def test_what_yaml_cannot_read_is_refused_and_what_is_no_spec_is_laid_out_all_the_same() -> None:
    with pytest.raises(SpecError, match="not-yaml"):
        lay("version: [1\n")
    with pytest.raises(SpecError, match="duplicate-key"):
        lay("version: 1\nversion: 1\n")
    assert lay("unknown:   1\nversion: 1\n") == "version: 1\nunknown: 1\n"
    assert lay("- a\n-   b\n") == "- a\n- b\n"


INSERTED = ["# note", "\n", "\n\n# note\n", "  # note\n", " ", "    ", "\n# a: b\n", " # 'x\n"]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from([*VALID, *OURS]), places=st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(INSERTED)), max_size=6))
def test_whatever_space_and_comments_stand_where_nothing_is_lost(path: Path, places: list[tuple[int, str]]) -> None:
    lines = path.read_text("utf-8").split("\n")
    for place, text in places:
        index = place % len(lines)
        lines[index] = lines[index] + " " + text if text.startswith("#") else lines[index] + text
    text = "\n".join(lines)
    try:
        data = read(text.encode(), path.name).data
    except SpecError:
        return
    after = lay(text)
    assert read(after.encode(), path.name).data == data
    assert lay(after) == after
    assert after.count("# note") == text.count("# note")
