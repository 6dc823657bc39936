"""Writes down what `probes check` says of every wrong spec, and the schema: `python -m tests.regenerate`."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

import click

from probes.commands.rendering.failure import problems_text
from probes.errors import SpecError
from probes.spec import load_spec
from probes.spec.schema import spec_schema
from tests import unfit

SPECS = Path(__file__).parent / "specs"
SCHEMA = Path(__file__).parents[1] / "schemas" / "probe-spec.v1.json"
REFUSED = sorted((SPECS / "invalid").glob("*.yaml"))
COMMAND = "python -m tests.regenerate"


def said(path: Path) -> str:
    """What `probes check` prints of a spec in the folder it stands in.

    Raises:
        AssertionError: nothing is wrong with the spec.
    """
    with chdir(path.parent):
        try:
            load_spec(path.name)
        except SpecError as error:
            return click.unstyle(problems_text(error.problems)) + "\n"
    raise AssertionError(f"{path} is accepted")


def schema_text() -> str:
    """The JSON Schema as it stands in its file."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for spec in REFUSED:
        spec.with_suffix(".txt").write_text(said(spec), encoding="utf-8")
    for spec in unfit.UNFIT:
        spec.with_suffix(".txt").write_text(unfit.said(spec), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
