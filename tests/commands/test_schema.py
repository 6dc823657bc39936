from __future__ import annotations

import json

from click.testing import CliRunner

from probes.cli import cli
from probes.run_directory.manifest import json_schema
from probes.spec.schema import spec_schema


def test_schema_prints_that_of_the_spec() -> None:
    result = CliRunner().invoke(cli, ["schema"])
    assert json.loads(result.stdout) == spec_schema()


def test_schema_manifest_prints_that_of_the_manifest() -> None:
    result = CliRunner().invoke(cli, ["schema", "manifest"])
    assert json.loads(result.stdout) == json_schema()
