from __future__ import annotations

import json
import time
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import yaml

from probes.errors import SpecError, StorageError, UsageError
from probes.spec import LoadedSpec, Probe, Spec, When, load_spec, load_text
from probes.spec.models import Defaults
from probes.transforms.cast import Cast
from tests.regenerate import SPECS

LEAST = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n"
VALID = sorted((SPECS / "valid").glob("*.yaml"))


def load(text: str) -> LoadedSpec:
    return load_text(text.encode(), "a.yaml", None)


def test_a_path_a_mapping_and_a_spec_give_the_same_result(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(LEAST, "utf-8")
    by_path = load_spec(tmp_path / "spec.yaml")
    by_mapping = load_spec({"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc1"]}}})
    by_spec = load_spec(Spec.model_validate({"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc1"]}}}))
    assert by_path.identity_hash == by_mapping.identity_hash == by_spec.identity_hash
    assert load_spec(by_path) is by_path


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_resolved_spec_resolves_to_itself(path: Path) -> None:
    loaded = load_spec(path)
    again = load_spec(json.loads(loaded.resolved))
    assert again.resolved == loaded.resolved
    assert again.identity_hash == loaded.identity_hash


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_spec_object_may_be_given_in_place_of_its_file(path: Path) -> None:
    loaded = load_spec(path)
    assert load_spec(loaded.spec).resolved == loaded.resolved


def test_a_spec_made_in_python_is_merged_with_its_defaults() -> None:
    made = Spec(
        version=1,
        defaults=Defaults(when=When(phases=("eval",))),
        probes={
            "a": Probe(hook="forward", modules=("fc1",), dims=None),
            "b": Probe(hook="forward", modules=("fc1",), when=When(phases=("train",)), transforms=(Cast(dtype="float16"),)),
        },
    )
    probes = load_spec(made).spec.probes
    assert [probe.when.phases for probe in probes.values()] == [("eval",), ("train",)]
    assert probes["b"].transforms == (Cast(dtype="float16"),)


def test_overrides_of_a_loaded_spec_add_to_its_earlier_overrides(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("name: base\n", "utf-8")
    (tmp_path / "spec.yaml").write_text(LEAST + "extends: [base.yaml]\n", "utf-8")
    once = load_spec(tmp_path / "spec.yaml", overrides=["on_error=raise"])
    twice = load_spec(once, overrides=["durability=power"])
    assert (twice.spec.name, twice.spec.on_error, twice.spec.durability) == ("base", "raise", "power")
    assert twice.overrides == ("on_error=raise", "durability=power")


def test_the_bytes_read_are_kept(tmp_path: Path) -> None:
    text = b"# a comment\r\n" + LEAST.encode()
    (tmp_path / "spec.yaml").write_bytes(text)
    assert load_spec(tmp_path / "spec.yaml").source == text


def test_the_name_is_the_files_stem_where_none_is_written(tmp_path: Path) -> None:
    for stem, name in (("probe", "probe"), ("my spec.v2", "my-spec"), ("2nd", "spec")):
        path = tmp_path / f"{stem}.yaml"
        path.write_text(LEAST, "utf-8")
        assert load_spec(path).spec.name == name


def test_keys_that_affect_no_captured_value_do_not_change_the_identity() -> None:
    plain = load(LEAST).identity_hash
    assert (
        load(
            LEAST + "durability: power\non_error: raise\ntolerance: {float32: {rtol: 0.1}}\nlimits: {matches_per_probe: 9}\n"
        ).identity_hash
        == plain
    )
    assert load(LEAST + "sinks: {captures: {kind: hdf5, compression: gzip}}\n").identity_hash == plain
    assert load(LEAST.replace("fc1", "fc2")).identity_hash != plain


def test_comments_and_order_of_keys_do_not_change_the_identity() -> None:
    other = "# hello\nprobes:\n  acts: {modules: [fc1], hook: forward}\nversion: 1\n"
    assert load(other).identity_hash == load(LEAST).identity_hash


def test_a_place_is_found_by_its_path() -> None:
    place = load(LEAST).locate(("probes", "acts", "modules", 0))
    assert (place.line, place.column, place.path) == (3, 35, "probes.acts.modules.0")


@pytest.mark.parametrize("spec", [3, None, b"version: 1", ["a"]])
def test_an_object_of_another_type_is_a_usage_error(spec: object) -> None:
    with pytest.raises(UsageError, match="a spec is a path"):
        load_spec(spec)


RECURSIVE: dict[str, object] = {}
RECURSIVE["again"] = [RECURSIVE]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"`probes` of the spec is of the type `object`; a spec holds texts, numbers,"),
        (float("nan"), "`probes` of the spec is `nan`; a number must be finite"),
        ("\ud800", r"`probes` of the spec has a text that is not Unicode: '\\ud800'"),
        ({"a": {"modules": ["0", {"1"}]}}, r"`probes\.a\.modules\[1\]` of the spec is of the type `set`"),
        ({"a": {"modules": [Path("fc1")]}}, r"`probes\.a\.modules\[0\]` of the spec is of the type `pathlib\.\w*Path`"),
        ({"a": {"when": {"steps": {"every": np.int64(2)}}}}, r"`probes\.a\.when\.steps\.every` of the spec is of the type `numpy\.int64`"),
        ({1: {}}, "`probes` of the spec has the key `1` of the type `int`; a key must be a text"),
        ({None: {}}, "`probes` of the spec has the key `None` of the type `NoneType`"),
        (RECURSIVE, r"`probes\.again\[0\]` of the spec contains itself"),
    ],
)
def test_a_mapping_with_another_object_than_a_file_can_hold_is_refused_at_its_place(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_spec({"version": 1, "probes": value})


def test_a_probe_whose_name_another_reader_takes_for_a_boolean_is_not_renamed() -> None:
    text = "version: 1\nprobes:\n  on: {modules: [fc1], hook: forward}\n"
    assert list(load(text).spec.probes) == ["on"]
    with pytest.raises(UsageError, match=r"`probes` of the spec has the key `True` .*YAML 1\.1, as PyYAML reads it, has booleans for `on`"):
        load_spec(yaml.safe_load(text))


def test_mappings_and_tuples_of_other_types_are_read_as_python_has_them() -> None:
    probe = MappingProxyType({"modules": ("fc1",), "hook": np.str_("forward")})
    spec = MappingProxyType({"version": 1, "probes": MappingProxyType({"acts": probe})})
    assert (
        load_spec(spec).identity_hash
        == load_spec({"version": 1, "probes": {"acts": {"modules": ["fc1"], "hook": "forward"}}}).identity_hash
    )


def test_a_missing_file_and_a_missing_preset_are_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        load_spec(tmp_path / "absent.yaml")
    with pytest.raises(SpecError, match="there is no preset `preset:nothing`; known: preset:activation-stats, "):
        load_spec("preset:nothing")
    with pytest.raises(SpecError, match="did you mean `preset:dead-units`"):
        load_spec("preset:dead-unit")


def test_problems_are_sorted_by_their_places() -> None:
    with pytest.raises(SpecError) as caught:
        load("version: 1\nprobes:\n  a: {hook: x, modules: y}\n  b: {}\nabout: 3\n")
    places = [(problem.line, problem.column) for problem in caught.value.problems]
    assert places == sorted(places)
    assert len(places) == 5


KINDS_OF_PROBE = (
    '{hook: forward, modules: ["layers.%d.*"], types: [Linear], transforms: [{kind: stats}], sinks: [captures, log]}',
    "{hook: backward, modules: [layers.%d], dims: [a, b, c], transforms: [{kind: reduce, op: mean, dims: [b]}], sinks: [captures]}",
    "{tensors: [layers.%d.weight], hook: tensor, stage: final, when: {epochs: {from: 2, until: 8}}, sinks: [captures]}",
    "{modules: [layers.%d], values: [input, output], when: {phases: [train, eval], calls: {at: [0]}}, sinks: [captures]}",
)


def test_a_spec_of_a_thousand_probes_is_checked_at_once() -> None:
    head = "version: 1\ndefaults: {when: {steps: {every: 10}}}\nsinks: {captures: {kind: hdf5}, log: {kind: jsonl}}\nprobes:\n"
    text = head + "".join(f"  p{index}: {KINDS_OF_PROBE[index % 4] % index}\n" for index in range(1000))
    began = time.process_time()
    loaded = load(text)
    assert loaded.identity_hash
    assert time.process_time() - began < 6  # a guard against what grows with the square, on a busy machine too
    assert len(loaded.spec.probes) == 1000


def test_the_text_of_a_spec_is_not_taken_for_a_path() -> None:
    with pytest.raises(UsageError, match=r"yaml\.safe_load"):
        load_spec("version: 1\nprobes: {}\n")
