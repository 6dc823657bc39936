"""`probes init`: write a first spec from a model, a script, a preset, or from nothing."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probes.commands.options import asking
from probes.commands.options.watching import HELP, OPTION, Watching, models, watch, words
from probes.commands.rendering.starting_spec import SCHEMA, Answers, plain_text, preset_text, text_for
from probes.errors import PlanError, StorageError, UsageError, nearest
from probes.spec import load_text
from probes.spec.schema import spec_schema
from probes.spec.spec_files import file_bytes, preset_names, preset_path

if TYPE_CHECKING:
    from probes.plan.suggestion import Suggestion


@dataclass(frozen=True)
class Found:
    """A model and the suggested targets.

    Attributes:
        model: the model, or several by name; None without a model.
        targets: name in the spec (`""` for a single model) -> class name and suggestion.
        phases: the phases of the watched calls.
        command: the options that name the model on a command line.
    """

    model: Any
    targets: dict[str, tuple[str, Suggestion]]
    phases: tuple[str, ...]
    command: str

    @property
    def only(self) -> Suggestion | None:
        """The suggestion for a single model; None for several."""
        return next(iter(self.targets.values()))[1] if len(self.targets) == 1 else None


@click.command(cls=Watching)
@click.option("--model", "name", metavar="PKG:CALLABLE", help="Choose targets from this model; also FILE.py:CALLABLE.")
@click.option("--preset", metavar="NAME", help="Start from this preset.")
@click.option("--modules", multiple=True, metavar="PATTERN", help="Modules to capture; repeatable. Default: the suggested ones.")
@click.option(
    "--keep", type=click.Choice(["stats", "values"]), default="stats", show_default=True, help="Store statistics or whole values."
)
@click.option("--every", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Capture every N steps.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default="probe.yaml", show_default=True, help="File to write."
)
@click.option("--ask/--no-ask", "wanted", default=None, help="Ask questions on the terminal; default: ask if no other option is given.")
@click.option(OPTION, "watched", is_flag=True, help=HELP)
@click.pass_context
def init(
    context: click.Context,
    name: str | None,
    preset: str | None,
    modules: tuple[str, ...],
    keep: str,
    every: int,
    out: Path,
    wanted: bool | None,
    watched: bool,
) -> None:
    """Write a first spec, and next to it the JSON Schema that editors use for completion and checks.

    Existing files are never overwritten. Targets come from a model: --model builds it; --watch runs a script and takes the model
    that it calls, with the modules that were called and their shapes. The new spec is checked against the model.
    """
    if out.exists():
        raise UsageError(f'"{out}" exists and is not overwritten; choose another file with `--out`')
    if name and watched:
        raise UsageError("use `--model` or `--watch`, not both")
    given = asking.StartingPoint(preset, name, words(context) if watched else ())
    asks = wanted if wanted is not None else not (given != asking.StartingPoint() or modules) and asking.can_ask()
    if asks and given == asking.StartingPoint():
        given = asking.source()
    if given.preset is not None and modules and "\n  layers:" not in _preset(given.preset):
        raise UsageError(f"preset `{given.preset}` has no variable `layers`, so `--modules` has no effect; remove it")
    found = _found(context, given)
    answers = Answers(modules, keep, every, found.phases)
    text = _text(given.preset, found, _asked(answers, given, found) if asks else answers)
    load_text(text.encode(), out.name, out.parent)
    misfit = _misfit(text, out, found.model) if found.model is not None else ""
    _write(out, text)
    schema = out.with_name(SCHEMA)
    if not schema.exists():
        _write(schema, json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n")
    click.echo(f'wrote "{out}" and "{schema}" (for completion in editors)')
    click.echo("\n".join([*([f"the spec does not fit the model yet: {misfit}"] if misfit else []), *_next(out, found, given)]))


def _asked(answers: Answers, given: asking.StartingPoint, found: Found) -> Answers:
    """Answers from the options or from questions."""
    layered = given.preset is None or "\n  layers:" in _preset(given.preset)
    if found.only is not None and layered and not answers.modules:
        answers = replace(answers, modules=asking.targets(found.only))
    if given.preset is None:
        answers = replace(answers, keep=asking.keep(), every=asking.every())
    return answers


def _found(context: click.Context, given: asking.StartingPoint) -> Found:
    """The model that was named, or that a script calls."""
    if not given.model and not given.program:
        return Found(None, {}, ("train",), "--model FILE.py:CALLABLE")

    from probes.plan.suggestion import suggestion
    from probes.plan.tree import Tree
    from probes.script.named_model import named_model

    if given.model:
        model = named_model(given.model)
        trees = {key: Tree(one) for key, one in (model.items() if isinstance(model, Mapping) else [("", model)])}
        targets = {key: (tree.root.kind, suggestion(tree)) for key, tree in trees.items()}
        return Found(model, targets, ("train",), f"--model {shlex.quote(given.model)}")
    context.meta[OPTION] = given.program
    seen = watch(context, "init")
    targets = {
        key: (tree.root.kind, suggestion(tree, lambda node, tree=tree: seen.values(tree, node)))  # type: ignore[misc]  # bound now
        for key, tree in seen.trees.items()
    }
    return Found(models(seen), targets, seen.phases, f"{OPTION} {shlex.join(given.program)}")


def _preset(preset: str | None) -> str:
    """The text of a preset; empty for none.

    Raises:
        UsageError: there is no such preset.
    """
    if preset is None:
        return ""
    name = f"preset:{preset.removeprefix('preset:')}"
    path = preset_path(name)
    if path is None:
        known = ", ".join(one.removeprefix("preset:") for one in preset_names())
        raise UsageError(f"preset `{preset}` does not exist; {nearest(name, preset_names()) or f'known: {known}'}")
    return file_bytes(path).decode()


def _text(preset: str | None, found: Found, answers: Answers) -> str:
    if preset is not None:
        return preset_text(_preset(preset), found.only, answers)
    return text_for(found.targets, answers) if found.targets else plain_text(answers)


def _misfit(text: str, out: Path, model: Any) -> str:
    """Return why the spec does not fit the model; empty if it fits."""
    from probes.plan import resolve

    try:
        resolve(load_text(text.encode(), out.name, out.parent), model)
    except PlanError as error:
        return str(error)
    return ""


def _write(path: Path, text: str) -> None:
    """Write a new file; never overwrite one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StorageError(f'cannot write "{path}": {os.strerror(error.errno or 0)}') from error


def _next(out: Path, found: Found, given: asking.StartingPoint) -> list[str]:
    """Return the commands to try next."""
    spec = shlex.quote(str(out))
    script = shlex.join(given.program) if given.program else "YOUR_SCRIPT.py"
    return [
        click.style("Next:", bold=True),
        f"  probes plan {spec} {found.command}",
        f"  probes run {spec} {script}",
        f"  edit {out}, then: probes check {spec}",
    ]
