"""Plug-ins: the package in examples/plugin, installed by a made-up dist-info on the path; no other plug-in is imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from torch import nn

import probes
from probes import plugins
from probes.cli import cli
from probes.errors import SpecError, UsageError
from probes.proof.replay_plan import changes, command, recorded
from probes.provenance.collect import Script
from probes.run_directory.manifest import Manifest
from probes.spec import load_spec
from tests.pages import ROOT

EXAMPLE = ROOT / "examples" / "plugin"
KIND = "acme.above"
PROBE = {"hook": "forward", "modules": ["0"], "transforms": [{"kind": KIND, "threshold": 0.5}]}
SPEC = {"version": 1, "name": "acme", "probes": {"a": PROBE}}
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Make a distribution known, as pip does it."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, points: str, version: str = "0.1.0", **files: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text(points)
        for file, text in files.items():
            (tmp_path / f"{file}.py").write_text(text)

    yield make
    for added in set(sys.modules) - known:
        if added.startswith("acme"):
            del sys.modules[added]


@pytest.fixture
def example(install: Install) -> None:
    """The example's package is installed."""
    text = (EXAMPLE / "acme_probes.py").read_text()
    install("acme-probes", f"[probes.transforms]\n{KIND} = acme_probes:Above\n", acme_probes=text)


def said(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "acme.yaml"
    path.write_text(json.dumps(SPEC))
    return path


def test_the_entry_point_of_the_example_is_the_one_that_is_tested_here() -> None:
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert f'[project.entry-points."probes.transforms"]\n"{KIND}" = "acme_probes:Above"' in text


@pytest.mark.usefixtures("example")
def test_a_spec_alone_never_imports_a_plugin() -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(SPEC)
    (problem,) = caught.value.problems
    assert problem.code == "plugin-not-allowed"
    assert problem.message == (
        "transform `acme.above` comes from the plug-in acme-probes 0.1.0; a plug-in must be allowed by name before it is imported"
    )
    assert problem.hint == "to allow it: `--allow-plugin acme.above`"
    assert "acme_probes" not in sys.modules


@pytest.mark.usefixtures("example")
def test_a_plugin_that_is_allowed_captures_and_is_in_the_manifest(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity())
    with probes.attach(model, SPEC, out=tmp_path / "run", allow_plugins=[KIND]) as run:
        for _ in run.epochs(1):
            for x in run.steps([torch.tensor([0.0, 1.0, 2.0, 3.0])]):
                model(x)
    assert probes.open(tmp_path / "run")["a", "0"].numpy().tolist() == [0.75]
    (recorded,) = json.loads((tmp_path / "run" / "run.json").read_text())["spec"]["plugins"]
    assert recorded["kind"] == KIND
    assert (recorded["distribution"], recorded["version"]) == ("acme-probes", "0.1.0")
    assert recorded["file"]["sha256"] == sha256((EXAMPLE / "acme_probes.py").read_bytes()).hexdigest()


@pytest.mark.usefixtures("example")
def test_a_grant_ends_with_its_call() -> None:
    load_spec(SPEC, allow_plugins=[KIND])
    assert not plugins.is_granted(KIND)
    with pytest.raises(SpecError, match="allowed by name"):
        load_spec(SPEC)


@pytest.mark.usefixtures("example")
def test_the_keys_of_a_plugin_are_checked_as_those_of_other_kinds_are() -> None:
    wrong = {**SPEC, "probes": {"a": {**PROBE, "transforms": [{"kind": KIND, "threshhold": 1.0}]}}}
    with pytest.raises(SpecError, match=r"`threshhold` is not a key of `acme\.above`"):
        load_spec(wrong, allow_plugins=[KIND])


@pytest.mark.usefixtures("example")
def test_check_accepts_an_allowed_plugin(spec: Path) -> None:
    refused = said("check", spec)
    assert refused.exit_code == 2
    assert "error[plugin-not-allowed]" in refused.stderr
    assert said("check", "--allow-plugin", KIND, spec).exit_code == 0


@pytest.mark.usefixtures("example")
def test_the_list_imports_only_allowed_plugins() -> None:
    assert "acme.above  transform  acme-probes   0.1.0    not allowed" in said("plugins").stdout
    assert "acme_probes" not in sys.modules
    (found,) = json.loads(said("plugins", "--json", "--allow-plugin", KIND).stdout)
    assert found["sha256"] == sha256((EXAMPLE / "acme_probes.py").read_bytes()).hexdigest()
    assert found["place"] == "acme_probes:Above"


def test_a_plugin_that_is_allowed_but_not_installed_is_refused(install: Install) -> None:
    with pytest.raises(UsageError, match=r"plug-in `acme.abvoe` is allowed, but not installed"):
        load_spec(SPEC, allow_plugins=["acme.abvoe"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('no license')", r"cannot be imported from `acme_bad:Bad`: RuntimeError: no license"),
        ("import sys; sys.exit('no license')", r"cannot be imported from `acme_bad:Bad`: SystemExit: no license"),
        ("Bad = 3", "is not a transform"),
        ("from probes.sinks.jsonl import Jsonl as Bad", "is not a transform"),
        ("from probes.transforms.stats import Stats as Bad", "has `kind` `stats`"),
    ],
)
def test_a_plugin_that_is_not_what_its_entry_point_declares_is_one_problem(text: str, reason: str, install: Install) -> None:
    install("acme-bad", f"[probes.transforms]\n{KIND} = acme_bad:Bad\n", acme_bad=text)
    with pytest.raises(SpecError, match=reason) as caught:
        load_spec(SPEC, allow_plugins=[KIND])
    assert [problem.code for problem in caught.value.problems] == ["plugin-broken"]


@pytest.mark.usefixtures("example")
def test_two_distributions_of_one_kind_are_refused(install: Install) -> None:
    install("acme-twin", f"[probes.transforms]\n{KIND} = acme_twin:Above\n")
    with pytest.raises(SpecError, match="`acme-probes` and `acme-twin`; uninstall"):
        load_spec(SPEC, allow_plugins=[KIND])


def test_a_plugin_without_a_dot_in_its_kind_never_replaces_a_built_in_kind(install: Install) -> None:
    install("acme-thief", "[probes.transforms]\nstats = acme_thief:Stats\n", acme_thief="raise RuntimeError")
    assert load_spec({"version": 1, "probes": {"a": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "stats"}]}}}).spec.probes
    assert "unusable: its name has no dot" in said("plugins").stdout


CSV = """
from typing import Literal

from probes.component import Sink, SinkContext


class Csv(Sink):
    'Writes numbers into a table.'

    kind: Literal["acme.csv"] = "acme.csv"

    def files(self):
        return (FILE,)

    def open(self, context):
        return Table(context.files[0])


class Table:
    def __init__(self, path):
        self.file = path.open("a")

    def step(self, readings):
        for reading in readings:
            print(reading.clock.step, *reading.numbers.values(), sep=",", file=self.file, flush=True)

    def close(self):
        self.file.close()
"""


def of_sinks(*names: str) -> dict[str, object]:
    probe = {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "norm"}]}
    return {"version": 1, "name": "acme", "probes": {"a": probe}, "sinks": {name: {"kind": "acme.csv"} for name in names}}


def test_a_sink_of_a_plugin_writes_the_file_that_it_declares(install: Install, tmp_path: Path) -> None:
    install("acme-csv", "[probes.sinks]\nacme.csv = acme_csv:Csv\n", acme_csv='FILE = "table.csv"\n' + CSV)
    model = nn.Sequential(nn.Identity())
    with probes.attach(model, of_sinks("table"), out=tmp_path / "run", allow_plugins=["acme.csv"]) as run:
        for _ in run.epochs(1):
            for x in run.steps([torch.tensor([3.0, 4.0])]):
                model(x)
    assert (tmp_path / "run" / "table.csv").read_text() == "0,5.0\n"


def test_two_sinks_of_a_plugin_cannot_write_one_file(install: Install) -> None:
    install("acme-csv", "[probes.sinks]\nacme.csv = acme_csv:Csv\n", acme_csv='FILE = "table.csv"\n' + CSV)
    with pytest.raises(SpecError) as caught:
        load_spec(of_sinks("one", "two"), allow_plugins=["acme.csv"])
    assert [(problem.code, problem.path) for problem in caught.value.problems] == [("two-files", "sinks.two")]


@pytest.mark.parametrize("name", ["ledger.jsonl", "../table.csv", "epoch-0000.h5"])
def test_a_sink_of_a_plugin_cannot_write_files_of_the_record(name: str, install: Install) -> None:
    install("acme-csv", "[probes.sinks]\nacme.csv = acme_csv:Csv\n", acme_csv=f"FILE = {name!r}\n{CSV}")
    with pytest.raises(SpecError, match="sink `one` cannot write") as caught:
        load_spec(of_sinks("one"), allow_plugins=["acme.csv"])
    assert [problem.code for problem in caught.value.problems] == ["sink-path"]


@pytest.mark.usefixtures("example")
def test_the_tests_of_the_example_pass() -> None:
    space: dict[str, Callable[[], None]] = {}
    exec(compile((EXAMPLE / "test_acme_probes.py").read_text(), "test_acme_probes.py", "exec"), space)
    tests = [test for name, test in space.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


@pytest.mark.usefixtures("example")
def test_a_replay_imports_plugins_that_its_run_was_allowed_to_import_if_they_are_unchanged(tmp_path: Path, spec: Path) -> None:
    manifest = _recorded(tmp_path)
    assert command(manifest, spec, tmp_path / "again", tmp_path)[4:8] == ["--out", str(tmp_path / "again"), "--allow-plugin", KIND]
    assert not [change for change in changes(manifest, tmp_path) if "plug-in" in change.what]
    (tmp_path / "acme_probes.py").write_text("")
    assert [change.what for change in changes(manifest, tmp_path) if "plug-in" in change.what] == ["plug-in acme.above"]


def _recorded(folder: Path) -> Manifest:
    """The manifest of a run of a script with the plug-in."""
    script = folder / "train.py"
    script.write_text("")
    made = probes.attach(
        nn.Sequential(nn.Identity()),
        SPEC,
        out=folder / "run",
        allow_plugins=[KIND],
        script=Script("train.py", script, ()),
        automatic=True,
    )
    with made as run, run.epoch(0), run.step():
        made.plan.trees[""].model(torch.ones(2))
    return recorded(folder / "run")
