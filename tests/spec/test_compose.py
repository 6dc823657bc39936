from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from probes.errors import SpecError, StorageError
from probes.spec import LoadedSpec, load_spec, load_text

ACTS = "  acts: {hook: forward, modules: [fc1]}\n"


def load(text: str, *overrides: str) -> LoadedSpec:
    return load_text(text.encode(), "a.yaml", None, overrides)


def codes(text: str, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text, *overrides)
    return [problem.code for problem in caught.value.problems]


def spec(body: str, before: str = "") -> str:
    return f"version: 1\n{before}probes:\n{body}"


def when_of(loaded: LoadedSpec, name: str = "acts") -> Any:
    return loaded.data["probes"][name]["when"]


def test_a_file_overrides_the_files_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "common.yaml").write_text(spec(ACTS, "about: common\nlimits: {matches_per_probe: 7, buffer_bytes: 1 MiB}\n"), "utf-8")
    (tmp_path / "a.yaml").write_text("version: 1\nextends: [common.yaml]\nlimits: {matches_per_probe: 9}\n", "utf-8")
    loaded = load_spec(tmp_path / "a.yaml")
    assert loaded.spec.about == "common"
    assert loaded.spec.limits.matches_per_probe == 9
    assert loaded.spec.limits.buffer_bytes == 1 << 20


def test_a_later_extended_file_overrides_an_earlier_one_and_lists_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(spec("  acts: {hook: forward, modules: [fc1, fc2]}\n"), "utf-8")
    (tmp_path / "two.yaml").write_text(spec("  acts: {modules: [fc3]}\n"), "utf-8")
    (tmp_path / "a.yaml").write_text("version: 1\nextends: [one.yaml, two.yaml]\n", "utf-8")
    assert load_spec(tmp_path / "a.yaml").spec.probes["acts"].modules == ("fc3",)


def test_extended_files_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.yaml").write_text("version: 1\nextends: [two.yaml]\n", "utf-8")
    (tmp_path / "deep" / "two.yaml").write_text(spec(ACTS), "utf-8")
    (tmp_path / "a.yaml").write_text("version: 1\nextends: [deep/one.yaml]\n", "utf-8")
    loaded = load_spec(tmp_path / "a.yaml")
    assert [Path(name).name for name, _ in loaded.files] == ["a.yaml", "one.yaml", "two.yaml"]
    assert all(len(digest) == 64 for _, digest in loaded.files)


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("version: 1\nextends: [b.yaml]\n", "utf-8")
    (tmp_path / "b.yaml").write_text("version: 1\nextends: [a.yaml]\n", "utf-8")
    with pytest.raises(SpecError, match="extends-cycle"):
        load_spec(tmp_path / "a.yaml")


def test_a_fan_of_files_is_refused(tmp_path: Path) -> None:
    for index in range(6):
        (tmp_path / f"{index}.yaml").write_text(f"version: 1\nextends: [{index + 1}.yaml, {index + 1}.yaml, {index + 1}.yaml]\n", "utf-8")
    (tmp_path / "6.yaml").write_text(spec(ACTS), "utf-8")
    with pytest.raises(SpecError, match="too-many-files"):
        load_spec(tmp_path / "0.yaml")


def test_a_problem_of_an_extended_file_is_reported_in_that_file(tmp_path: Path) -> None:
    (tmp_path / "common.yaml").write_text("version: 1\nlimits: {matches_per_probe: 0}\n", "utf-8")
    (tmp_path / "a.yaml").write_text("extends: [common.yaml]\n" + spec(ACTS), "utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "a.yaml")
    (problem,) = caught.value.problems
    assert (Path(problem.file).name, problem.line, problem.column) == ("common.yaml", 2, 29)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        load_spec(tmp_path)


def test_a_schedule_overrides_defaults_key_by_key() -> None:
    loaded = load(
        spec(
            "  acts: {hook: forward, modules: [a], when: {steps: {first: 1}}}\n  more: {hook: forward, modules: [b]}\n",
            "defaults: {when: {steps: {every: 10}, epochs: {until: 3}}, expect: {fires: some}}\n",
        )
    )
    assert when_of(loaded) == {"phases": ["train"], "steps": {"first": 1}, "epochs": {"until": 3}}
    assert when_of(loaded, "more")["steps"] == {"every": 10}
    assert loaded.spec.probes["more"].expect is not None


def test_defaults_never_apply_to_edits() -> None:
    text = spec(
        "  halve: {hook: forward, modules: [a], edit: {kind: scale, by: 0.5}}\n",
        "allow_edits: true\ndefaults: {when: {steps: {first: 1}}}\n",
    )
    assert when_of(load(text), "halve") == {"phases": ["train"]}


def test_a_mistake_in_defaults_is_reported_once() -> None:
    assert codes(spec(ACTS + "  more: {hook: forward, modules: [b]}\n", "defaults: {when: {steps: {every: 0}}}\n")) == ["out-of-range"]


def test_a_variable_alone_keeps_its_type_and_within_a_text_becomes_text() -> None:
    loaded = load(
        spec(
            '  acts: {hook: forward, modules: ["b${n}.${name}"], enabled: "${on}", when: {steps: {every: "${n}"}}}\n',
            "vars: {n: 3, name: c, on: true}\n",
        )
    )
    assert loaded.spec.probes["acts"].modules == ("b3.c",)
    assert when_of(loaded)["steps"] == {"every": 3}


def test_a_variable_is_set_from_outside() -> None:
    loaded = load(spec('  acts: {hook: forward, modules: ["${m}"]}\n', "vars: {m: a}\n"), "vars.m=b")
    assert loaded.spec.probes["acts"].modules == ("b",)


def test_a_variable_cannot_use_another_variable() -> None:
    body = '  acts: {hook: forward, modules: [m], about: "${a}${b}"}\n'
    assert codes(spec(body, 'vars: {a: "${b}", b: 1}\n')) == ["unknown-variable"]


def test_every_wrong_variable_is_reported() -> None:
    assert codes(spec('  acts: {hook: forward, modules: ["${x}.${y}", "${z}"]}\n', "vars: {a: 1}\n")) == [
        "unused-variable",
        *["unknown-variable"] * 3,
    ]


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("name=two", ("name",), "two"),
        ("probes.acts.when.steps.every=5", ("probes", "acts", "when", "steps"), {"every": 5}),
        ("probes.acts.modules=[a, b]", ("probes", "acts", "modules"), ["a", "b"]),
        ('about=""', ("about",), ""),
        ("about=*.conv", ("about",), "*.conv"),
        ("about=a=b", ("about",), "a=b"),
        ("probes.acts.modules.0=b", ("probes", "acts", "modules"), ["b"]),
    ],
)
def test_overrides_are_read_like_values_of_the_file(text: str, path: tuple[str, ...], value: object) -> None:
    data: Any = load(spec(ACTS), text).data
    for key in path:
        data = data[key]
    assert data == value


@pytest.mark.parametrize("text", ["name", "=x", "name=", "name.first=x", "a..b=1", "name=010", "probes=[", "version=2"])
def test_a_wrong_override_is_reported_at_its_place(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(spec(ACTS, "name: one\n"), text)
    assert caught.value.problems[0].file.startswith("--set")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("probes.acts.hook=bakward", "did you mean `backward`?"),
        ("probes.acts.wen.steps.every=3", "did you mean `when`?"),
        ("probes.actz.enabled=false", "did you mean `acts`?"),
        ("probes.acts.hook.first=b", "write for example `--set"),
        ("probes.acts.modules.1=b", "its one member is probes.acts.modules.0; set the whole list by `--set 'probes.acts.modules=[...]'`"),
        ("probes.acts.modules.first=b", "`probes.acts.modules` is a list, and has no member `first`"),
        ("probes.acts.modules.0=3", "quote it"),
    ],
)
def test_a_problem_of_an_override_shows_the_override(text: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(spec(ACTS), text)
    (problem,) = caught.value.problems
    assert problem.file == f"--set {text.partition('=')[0]}"
    assert hint in str(problem)


def test_members_of_lists_can_be_set() -> None:
    transforms = "transforms: [{kind: cast, dtype: float16}, {kind: norm}]"
    data = load(f"version: 1\nprobes: {{a: {{hook: forward, modules: [x], {transforms}}}}}\n", "probes.a.transforms.0.dtype=float32").data
    assert [transform.get("dtype") for transform in data["probes"]["a"]["transforms"]] == ["float32", None]


def test_a_spec_of_a_thousand_probes_loads_in_a_second() -> None:
    probes = "".join(
        f'  p{index}: {{hook: forward, modules: ["layers.{index}.*"], when: {{epochs: {{from: 1}}}}}}\n' for index in range(1000)
    )
    began = time.process_time()
    load(spec(probes, "defaults: {when: {steps: {every: 10, first: 3}}, sinks: [captures]}\n"))
    assert time.process_time() - began < 6  # a guard against what grows with the square, on a busy machine too


def test_the_hint_shows_a_number_in_the_notation_that_is_allowed() -> None:
    with pytest.raises(SpecError, match=r"write 1000$"):
        load(spec("  acts: {hook: forward, modules: [fc1], when: {steps: {every: 1e3}}}\n"))


def test_extends_stays_in_the_folder_and_follows_no_links(tmp_path: Path) -> None:
    secret = "password: hunter2\n"
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside" / "credentials.yaml").write_text(secret, "utf-8")
    (tmp_path / "inside" / "credentials.yaml").write_text(secret, "utf-8")
    (tmp_path / "inside" / "link.yaml").symlink_to(tmp_path / "outside" / "credentials.yaml")
    (tmp_path / "inside" / "folder").symlink_to(tmp_path / "outside")
    cases = {
        "../outside/credentials.yaml": "extends-outside",
        "../outside/gone.yaml": "extends-outside",
        "link.yaml": "extends-outside",
        "folder/credentials.yaml": "extends-outside",
        "credentials.yaml": "extends-no-spec",
    }
    for base, code in cases.items():
        (tmp_path / "inside" / "a.yaml").write_text(f"version: 1\nextends: [{base}]\n", "utf-8")
        with pytest.raises(SpecError, match=code) as refused:
            load_spec(tmp_path / "inside" / "a.yaml")
        assert "hunter2" not in str(refused.value)


def test_extends_reaches_everything_in_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "specs").mkdir()
    (tmp_path / "common.yaml").write_text(spec(ACTS), "utf-8")
    (tmp_path / "specs" / "a.yaml").write_text("version: 1\nextends: [../common.yaml]\n", "utf-8")
    assert load_spec(tmp_path / "specs" / "a.yaml").files[1][0].endswith("common.yaml")


def test_a_spec_is_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with (tmp_path / "sparse.yaml").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    for name, what in {"pipe": "not a regular file", "sparse": "too-large", "zero": "not a regular file"}.items():
        with pytest.raises((StorageError, SpecError), match=what):
            load_spec(tmp_path / f"{name}.yaml")
    (tmp_path / "a.yaml").write_text("version: 1\nextends: [sparse.yaml]\n", "utf-8")
    with pytest.raises(SpecError, match="too-large"):
        load_spec(tmp_path / "a.yaml")


def test_a_link_shows_lines_of_specs_only(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("machine example.org password hunter2\n", "utf-8")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "credentials")
    with pytest.raises(StorageError, match="is a link to a file that is not a spec") as refused:
        load_spec(tmp_path / "link.yaml")
    assert "hunter2" not in str(refused.value)
    (tmp_path / "real.yaml").write_text(spec(ACTS), "utf-8")
    (tmp_path / "good.yaml").symlink_to(tmp_path / "real.yaml")
    assert load_spec(tmp_path / "good.yaml").spec.probes


def test_a_name_that_no_file_can_have_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"version: 1\nextends: [{'x' * 400}.yaml]\n", "utf-8")
    with pytest.raises(SpecError, match="missing-file"):
        load_spec(tmp_path / "a.yaml")
