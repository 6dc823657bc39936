from __future__ import annotations

from pathlib import Path

import pytest

from probes.spec.spec_files import is_spec
from tests.pages import ROOT

SPECS = ROOT / "tests" / "specs"
OWN = [*sorted((SPECS / "valid").glob("*.yaml")), *sorted((ROOT / "probes" / "presets").glob("*.yaml"))]
OTHERS = {
    "compose": "version: '3.9'\nservices:\n  web: {image: nginx}\n",
    "helm": "version: 1.2.3\nprobes:\n  liveness: {path: /healthz, port: 80}\n",
    "helm without version": "probes:\n  readiness:\n    enabled: true\n",
    "kubernetes": "apiVersion: v1\nkind: Pod\nspec:\n  probes: []\n  version: 1\n",
    "workflow": "name: ci\non: push\njobs:\n  probes:\n    steps:\n      - run: probes check a.yaml\n        modules: x\n",
    "prometheus": "modules:\n  http_2xx: {prober: http}\nprobes_total: 3\nversion: 1\n",
    "comment": "# probes: see the other file\n# version: 1\nname: x\n",
    "text": "about: |\n  version: 1\n  probes: none\n",
    "empty": "",
    "bytes": "\x00\x01\x02",
}
MEANT = {
    "schema alone": "# yaml-language-server: $schema=../schemas/probe-spec.v1.json\nprobs:\n  a: {}\n",
    "schema behind a licence": "---\n# Copyright\n\n# yaml-language-server: $schema=probe-spec.v1.json\nx: 1\n",
    "misspelt version": "verison: 1\nprobes:\n  a: {hook: forward, modules: [fc1]}\n",
    "no version": "probes:\n  a:\n    tensors: [fc.weight]\n",
    "no YAML": "version: 1\nprobes:\n  a: {hook: forward, modules: [fc1\n",
    "windows": "\ufeffversion: 1  # the first\r\nprobes:\r\n  a: {}\r\n",
    "quoted": "\"version\": 1\n'probes':\n  a: {}\n",
    "braces": '{"version": 1, "probes": {"a": {"hook": "forward"}}}',
    "braces on lines": '{\n  "version": 1,\n  "probes": {}\n}\n',
    "probes first": "probes:\n  a: {}\nversion: 1\n",
}


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_every_valid_spec_is_recognized(path: Path) -> None:
    assert is_spec(path.read_bytes())


@pytest.mark.parametrize("name", MEANT)
def test_a_file_that_looks_like_a_spec_is_recognized_with_any_mistake(name: str) -> None:
    assert is_spec(MEANT[name].encode())


@pytest.mark.parametrize("name", OTHERS)
def test_the_yaml_of_another_program_is_not_a_spec(name: str) -> None:
    assert not is_spec(OTHERS[name].encode())


def test_nearly_every_wrong_spec_is_recognized() -> None:
    wrong = sorted((SPECS / "invalid").glob("*.yaml"))
    missed = [path.stem for path in wrong if not is_spec(path.read_bytes())]
    assert len(missed) < len(wrong) / 10, missed
