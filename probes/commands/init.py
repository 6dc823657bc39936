"""`probes init`: a first spec, from a model, a preset or nothing at all."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probes.commands.starting_spec import SCHEMA, plain_text, preset_text, text_for
from probes.errors import PlanError, StorageError, UsageError, nearest
from probes.spec import load_text
from probes.spec.compose import file_bytes, preset_names, preset_path
from probes.spec.schema import spec_schema

if TYPE_CHECKING:
    from probes.plan.suggestion import Suggestion

Found = dict[str, tuple[str, "Suggestion"]]


@click.command()
@click.option("--model", "name", metavar="PKG:CALLABLE", help="Choose targets from this model; FILE.py:CALLABLE too.")
@click.option("--preset", metavar="NAME", help="Start from a copy of this preset.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default="probe.yaml", show_default=True, help="The file to write.")
def init(name: str | None, preset: str | None, out: Path) -> None:
    """Write a first spec, and beside it the schema that editors complete and check it with.

    A file that is there already is never written over. With --model the spec is checked against the model.
    """
    if out.exists():
        raise UsageError(f"'{out}' is there already and stays as it is; name another file with `--out`")
    model = _model(name) if name else None
    found = _suggested(model) if model is not None else {}
    text = _text(preset, found)
    load_text(text.encode(), out.name, out.parent)
    misfit = _misfit(text, out, model) if model is not None else ""
    _write(out, text)
    schema = out.with_name(SCHEMA)
    if not schema.exists():
        _write(schema, json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n")
    click.echo(f"wrote {out}, and {schema} for completion in editors")
    click.echo("\n".join([*([f"it does not fit the model yet: {misfit}"] if misfit else []), *_next(out, name)]))


def _model(name: str) -> Any:
    from probes.script.named_model import named_model

    return named_model(name)


def _suggested(model: Any) -> Found:
    from probes.plan.suggestion import suggestion
    from probes.plan.tree import Tree

    trees = {key: Tree(one) for key, one in (model.items() if isinstance(model, Mapping) else [("", model)])}
    return {key: (tree.root.kind, suggestion(tree)) for key, tree in trees.items()}


def _text(preset: str | None, found: Found) -> str:
    if preset is None:
        return text_for(found) if found else plain_text()
    name = f"preset:{preset.removeprefix('preset:')}"
    path = preset_path(name)
    if path is None:
        known = ", ".join(one.removeprefix("preset:") for one in preset_names())
        raise UsageError(f"there is no preset '{preset}'; {nearest(name, preset_names()) or f'known: {known}'}")
    return preset_text(file_bytes(path).decode(), next(iter(found.values()))[1] if len(found) == 1 else None)


def _misfit(text: str, out: Path, model: Any) -> str:
    """What does not fit; empty where all does."""
    from probes.plan import resolve

    try:
        resolve(load_text(text.encode(), out.name, out.parent), model)
    except PlanError as error:
        return str(error)
    return ""


def _write(path: Path, text: str) -> None:
    """Write a new file; never over one that is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StorageError(f"'{path}' cannot be written: {os.strerror(error.errno or 0)}") from error


def _next(out: Path, model: str | None) -> list[str]:
    """What to type next."""
    spec = shlex.quote(str(out))
    where = shlex.quote(model) if model else "FILE.py:CALLABLE"
    return [
        click.style("Next:", bold=True),
        f"  probes plan {spec} --model {where}",
        f"  probes run {spec} YOUR_SCRIPT.py",
        f"  and change {out}; `probes check {spec}` tells what it thinks of it",
    ]
