"""Independent faults planted in one valid spec are all reported in one run, each at its line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.errors import Problem, SpecError
from probes.spec import load_text

HEAD = """\
version: 1
name: planted
about: a spec to plant faults in
models:
  g: Generator
  d: Discriminator
clock:
  model: g
  epoch_steps: 10
vars:
  used: 3
allow_edits: true
durability: process
limits:
  matches_per_probe: 9
  bytes_per_epoch: 1 GiB
sinks:
  captures:
    kind: hdf5
  log:
    kind: jsonl
    path: a.jsonl
tolerance:
  float32:
    rtol: 0.1
probes:
"""
PROBE = """\
  {name}:
    model: g
    hook: forward
    modules:
      - blocks.*
      - head
    exclude:
      - blocks.0
    values:
      - output.a
      - output.b
    about: ${{used}} steps
    dims: [batch, channel]
    when:
      phases: [train, eval]
      steps:
        every: 4
      calls:
        at: [0]
    transforms:
      - kind: cast
        dtype: float16
      - kind: stats
    sinks:
      - captures
      - log
    expect:
      matches: 2
    enabled: true
"""
PROBES = ("one", "two", "three")


@dataclass(frozen=True)
class Planted:
    """A fault: what a line of the sound spec becomes, and the code and the line that must be reported.

    Two faults of one place change the same line, or one changes what the other says; at most one of them is planted.
    """

    code: str
    line: str
    becomes: str
    places: str
    reported: str = ""  # the last line of `becomes` where empty

    @property
    def at(self) -> str:
        return (self.reported or self.becomes.rpartition("\n")[2]).strip()


OF_SPEC = [
    Planted("wrong-type", "about: a spec to plant faults in", "about: [3]", "about"),
    Planted("name", "name: planted", "name: 5 planted", "name"),
    Planted("name", "  d: Discriminator", "  9d: Discriminator", "models"),
    Planted("unknown-model", "  model: g", "  model: c", "clock.model"),
    Planted("out-of-range", "  epoch_steps: 10", "  epoch_steps: 0", "epoch_steps"),
    Planted("unused-variable", "  used: 3", "  used: 3\n  unused: 4", "vars"),
    Planted("bad-choice", "durability: process", "durability: never", "durability"),
    Planted("unknown-key", "durability: process", "durability: process\ncolour: red", "durability"),
    Planted("out-of-range", "  matches_per_probe: 9", "  matches_per_probe: 0", "matches"),
    Planted("bytes", "  bytes_per_epoch: 1 GiB", "  bytes_per_epoch: 1 gigabyte", "bytes"),
    Planted("no-effect", "  bytes_per_epoch: 1 GiB", "  on_limit: raise", "bytes"),
    Planted("two-files", "    path: a.jsonl", "    path: a.jsonl\n  again:\n    kind: jsonl\n    path: a.jsonl", "log", "again:"),
    Planted("kind-unknown", "    kind: jsonl", "    kind: jsnol", "log"),
    Planted("unknown-key", "    kind: hdf5", "    kind: hdf5\n    colour: red", "captures"),
    Planted("dtype", "  float32:", "  float31:", "tolerance"),
    Planted("null", "    rtol: 0.1", "    rtol:", "rtol"),
]
OF_PROBE = [
    Planted("bad-choice", "    hook: forward", "    hook: fwd", "hook"),
    Planted("hook-and-value", "    hook: forward", "    hook: backward", "hook values0 values1", "- output.a"),
    Planted("unknown-model", "    model: g", "    model: c", "model"),
    Planted("pattern", "      - blocks.*", "      - blocks.**x", "modules0"),
    Planted("wrong-type", "      - head", "      - 7", "modules1"),
    Planted("no-effect", "      - head", "      - head\n      - head", "modules1"),
    Planted("no-effect", "      - blocks.*", "      - blocks.1", "modules0 modules1 exclude", "exclude:"),
    Planted("value-path", "      - output.a", "      - outputs.a", "values0"),
    Planted("no-effect", "      - output.b", "      - output.b\n      - output.b.c", "values1"),
    Planted("unknown-key", "    dims: [batch, channel]", "    dims: [batch, channel]\n    colour: red", "dims"),
    Planted("name", "    dims: [batch, channel]", "    dims: [batch, 2nd]", "dims"),
    Planted("phases", "      phases: [train, eval]", "      phases: [train, all]", "phases"),
    Planted("unknown-variable", "        every: 4", "        every: ${other}", "every"),
    Planted("out-of-range", "        every: 4", "        every: 0", "every"),
    Planted("range", "        every: 4", "        every: 4\n        until: 2\n        from: 3", "every", "until: 2"),
    Planted("out-of-range", "        at: [0]", "        at: [-1]", "at"),
    Planted("range", "        at: [0]", "        at: [0]\n        first: 2", "at"),
    Planted("bad-choice", "        dtype: float16", "        dtype: float61", "cast dtype"),
    Planted("missing-key", "        dtype: float16", "        # removed", "cast dtype", "- kind: cast"),
    Planted("null", "        dtype: float16", "        dtype:", "dtype"),
    Planted("kind-unknown", "      - kind: cast", "      - kind: cats", "cast"),
    Planted("kind-unknown", "      - kind: stats", "      - kind: stat", "stats"),
    Planted("unknown-sink", "      - captures", "      - capture", "sinks0"),
    Planted("unknown-sink", "      - log", "      - lgo", "sinks1"),
    Planted("out-of-range", "      matches: 2", "      matches: 0", "expect"),
    Planted("looks-boolean", "    enabled: true", "    enabled: yes", "enabled"),
    Planted("duplicate-key", "    enabled: true", "    enabled: true\n    enabled: false", "enabled", "enabled: false"),
]
KINDS = [(fault, "") for fault in OF_SPEC] + [(fault, name) for fault in OF_PROBE for name in PROBES]
Kind = tuple[Planted, str]
Said = tuple[str, str, str]  # code, probe, line


def planted(kinds: list[Kind]) -> str:
    """The spec with some faults in it."""
    parts = {"": HEAD, **{name: PROBE.format(name=name) for name in PROBES}}
    for fault, name in kinds:
        assert parts[name].count(f"\n{fault.line}\n") == 1, fault
        parts[name] = parts[name].replace(f"\n{fault.line}\n", f"\n{fault.becomes}\n")
    return "".join(parts.values())


def said(text: str) -> set[Said]:
    """What is reported of a spec: each code, with the probe and the line that it is reported at."""
    found = set()
    for problem in _problems(text):
        top, _, below = problem.path.partition(".")
        found.add((problem.code, below.partition(".")[0] if top == "probes" else "", problem.source.strip()))
    return found


def _problems(text: str) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        load_text(text.encode(), "planted.yaml", None)
    return list(caught.value.problems)


@cache
def said_alone(kind: Kind) -> set[Said]:
    return said(planted([kind]))


@st.composite
def independent(draw: st.DrawFn) -> list[Kind]:
    """Faults of which none changes what another says."""
    taken: set[tuple[str, str]] = set()
    kinds = []
    for fault, name in draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=12)):
        places = {(name, place) for place in fault.places.split()}
        if not places & taken:
            taken |= places
            kinds.append((fault, name))
    return kinds


def test_the_spec_without_planted_faults_is_valid() -> None:
    assert set(load_text(planted([]).encode(), "planted.yaml", None).spec.probes) == set(PROBES)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[1] in ("", "two")], ids=lambda kind: f"{kind[0].code}-{kind[0].at}")
def test_a_fault_alone_is_reported_at_its_line(kind: Kind) -> None:
    fault, name = kind
    assert (fault.code, name, fault.at) in said_alone(kind)


@settings(max_examples=300)
@given(independent())
def test_all_faults_are_reported_in_one_run_and_nothing_else(kinds: list[Kind]) -> None:
    found = said(planted(kinds))
    assert {(fault.code, name, fault.at) for fault, name in kinds} <= found
    assert found <= {one for kind in kinds for one in said_alone(kind)}


def test_an_edit_that_cannot_be_read_is_still_an_edit() -> None:
    probe = "{modules: [a], values: [output], sees: edited, edit: {kind: scale, by: many}}"
    found = said(f"version: 1\nprobes:\n  p: {probe}\n")
    assert {code for code, _, _ in found} == {"factor", "edits-not-allowed", "no-effect"}


def test_a_key_that_may_be_misspelt_is_not_reported_as_missing() -> None:
    found = said("version: 1\nprobes:\n  p: {hok: forward, modules: [a], edti: {kind: scale, by: 2}, sees: edited}\n")
    assert {code for code, _, _ in found} == {"unknown-key", "edits-not-allowed", "no-effect"}


MISSPELT = """version: 1
default:
  wen: {step: {every: three}}
probe:
  a:
    hook: foward
    modules: features.norm
    transform:
      - {kind: stat}
    when:
      step:
        evry: 10
  b:
    tensors: [classifier.weight]
    wher: {of: {kind: abs}, abov: 3}
"""


def test_faults_below_misspelt_keys_are_reported_in_the_same_run() -> None:
    assert said(MISSPELT) == {
        ("unknown-key", "", "default:"),
        ("unknown-key", "", "wen: {step: {every: three}}"),
        ("wrong-type", "b", "wen: {step: {every: three}}"),
        ("unknown-key", "", "probe:"),
        ("bad-choice", "a", "hook: foward"),
        ("wrong-type", "a", "modules: features.norm"),
        ("unknown-key", "a", "transform:"),
        ("kind-unknown", "a", "- {kind: stat}"),
        ("unknown-key", "a", "step:"),
        ("unknown-key", "a", "evry: 10"),
        ("unknown-key", "b", "wher: {of: {kind: abs}, abov: 3}"),
    }
    assert {(problem.column, problem.hint) for problem in _problems(MISSPELT) if problem.line == 15} == {
        (5, "did you mean `where`?"),
        (29, "did you mean `above`?"),
    }


def test_a_misspelt_key_with_other_content_is_reported_alone() -> None:
    assert said("version: 1\nprobes: {a: {modules: [b], values: [output], transform: stats}}\n") == {
        ("unknown-key", "a", "probes: {a: {modules: [b], values: [output], transform: stats}}")
    }
