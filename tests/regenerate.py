"""Rewrites everything that is generated from the code and needs no training: `make regenerate`."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from pathlib import Path

import click

from probes.cli import cli, verbs
from probes.commands.completion.table import TABLE as COMPLETION
from probes.commands.completion.table import rows
from probes.commands.rendering.failure import problems_text
from probes.errors import SpecError
from probes.run_directory.manifest import json_schema as manifest_schema
from probes.spec import load_spec
from probes.spec.schema import spec_schema
from tests import refused_by_plan
from tests.pages import ROOT, script

SPECS = Path(__file__).parent / "specs"
SCHEMA = ROOT / "schemas" / "probe-spec.v1.json"
REFUSED = sorted((SPECS / "invalid").glob("*.yaml"))
MANIFEST = ROOT / "schemas" / "manifest.v1.json"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
COMMAND = "make regenerate"


def said(path: Path) -> str:
    """Return what `probes check` prints for a spec, run in its folder.

    Raises:
        AssertionError: the spec has no problem.
    """
    with chdir(path.parent):
        try:
            load_spec(path.name)
        except SpecError as error:
            return click.unstyle(problems_text(error.problems)) + "\n"
    raise AssertionError(f"{path} is accepted")


def schema_text() -> str:
    """Return the JSON Schema as text."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


def completion_text() -> str:
    """Return the table of verbs that shells complete from."""
    commands = {name: cli.get_command(click.Context(cli), name) for name in verbs()}
    return json.dumps(rows({name: one for name, one in commands.items() if one is not None}), indent=1, ensure_ascii=False) + "\n"


def with_shown_files(text: str) -> str:
    """A page with every file that it shows (below a `file:` mark) replaced by the file as it is now."""

    def shown(found: re.Match[str]) -> str:
        return f"<!-- file: {found[1]} -->\n```{found[2]}\n{(ROOT / found[1]).read_text(encoding='utf-8')}```"

    return re.sub(r"<!-- file: (\S+) -->\n```(\w+)\n.*?```", shown, text, flags=re.DOTALL)


def everything() -> None:
    """Rewrite every generated file that needs no training."""
    for spec in REFUSED:
        spec.with_suffix(".txt").write_text(said(spec), encoding="utf-8")
    for spec in refused_by_plan.REFUSED:
        spec.with_suffix(".txt").write_text(refused_by_plan.said(spec), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    MANIFEST.write_text(json.dumps(manifest_schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    COMPLETION.write_text(completion_text(), encoding="utf-8")
    kinds, reference, torture = (script(name) for name in ("kinds", "reference", "torture"))
    kinds.PAGE.write_text(kinds.page(), encoding="utf-8")
    for name, write in reference.PAGES.items():
        (reference.FOLDER / name).write_text(write(), encoding="utf-8")
    torture.README.write_text(torture.page(torture.README.read_text(encoding="utf-8")), encoding="utf-8")
    CONTRIBUTING.write_text(with_shown_files(CONTRIBUTING.read_text(encoding="utf-8")), encoding="utf-8")
    script("included").write()


if __name__ == "__main__":
    everything()
