from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from torch import nn

from probes.provenance.collect import Script, collect
from probes.run_directory.manifest import Manifest, json_schema
from tests.proof.origin import loaded, tree

SCHEMA = Path(__file__).parents[2] / "schemas" / "manifest.v1.json"


def document() -> dict[str, Any]:
    origin = collect({"": tree(nn.Sequential(nn.Linear(2, 2)))}, loaded(), run_id="r", script=Script(None, None, ()))
    data: dict[str, Any] = json.loads(origin.manifest.text())
    return data


def test_the_schema_in_the_repository_is_the_one_of_the_model() -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == json_schema(), "run: make regenerate"


def test_a_manifest_fits_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft202012Validator(json_schema()).validate(document())


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Manifest.model_validate(document() | {"extra": 1})


def test_a_manifest_is_read_without_torch() -> None:
    script = "import sys, probes.run_directory.manifest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
