"""`probes init`: a first spec, from a model, a script, a preset or nothing at all."""

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
from probes.spec.compose import file_bytes, preset_names, preset_path
from probes.spec.schema import spec_schema

if TYPE_CHECKING:
    from probes.plan.suggestion import Suggestion


@dataclass(frozen=True)
class Found:
    """A model, and what to look at in it.

    Attributes:
        model: the model, or several by name; None where there is none.
        targets: name in the spec, `""` where there is one -> class name and suggestion.
        phase: the phase of the pass that was watched.
        command: how the model is named on a command line.
    """

    model: Any
    targets: dict[str, tuple[str, Suggestion]]
    phase: str
    command: str

    @property
    def only(self) -> Suggestion | None:
        """The suggestion, where there is one model."""
        return next(iter(self.targets.values()))[1] if len(self.targets) == 1 else None


@click.command(cls=Watching)
@click.option("--model", "name", metavar="PKG:CALLABLE", help="Choose targets from this model; FILE.py:CALLABLE too.")
@click.option("--preset", metavar="NAME", help="Start from a copy of this preset.")
@click.option("--modules", multiple=True, metavar="PATTERN", help="Look at these modules; repeatable. Without it, at what is suggested.")
@click.option("--keep", type=click.Choice(["stats", "values"]), default="stats", show_default=True, help="What is stored of a value.")
@click.option("--every", type=click.IntRange(1), default=10, show_default=True, help="Each how many steps.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default="probe.yaml", show_default=True, help="The file to write.")
@click.option("--ask/--no-ask", "wanted", default=None, help="Ask for each answer; without any of the others, a terminal is asked.")
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
    """Write a first spec, and beside it the schema that editors complete and check it with.

    A file that is there already is never written over. Targets are chosen from a model: one that is built (--model), or that a script
    calls (--watch), of which only what fires is suggested, with its shapes. The spec is then checked against it.
    """
    if out.exists():
        raise UsageError(f"'{out}' is there already and stays as it is; name another file with `--out`")
    if name and watched:
        raise UsageError("the model comes from `--model` or from `--watch`, not from both")
    given = asking.Source(preset, name, words(context) if watched else ())
    asks = wanted if wanted is not None else not (given != asking.Source() or modules) and asking.can_ask()
    if asks and given == asking.Source():
        given = asking.source()
    if given.preset is not None and modules and "\n  layers:" not in _preset(given.preset):
        raise UsageError(f"preset '{given.preset}' has no `layers`, so `--modules` has no effect; leave it out")
    found = _found(context, given)
    answers = Answers(modules, keep, every, found.phase)
    text = _text(given.preset, found, _asked(answers, given, found) if asks else answers)
    load_text(text.encode(), out.name, out.parent)
    misfit = _misfit(text, out, found.model) if found.model is not None else ""
    _write(out, text)
    schema = out.with_name(SCHEMA)
    if not schema.exists():
        _write(schema, json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n")
    click.echo(f"wrote {out}, and {schema} for completion in editors")
    click.echo("\n".join([*([f"it does not fit the model yet: {misfit}"] if misfit else []), *_next(out, found, given)]))


def _asked(answers: Answers, given: asking.Source, found: Found) -> Answers:
    """The answers that a person gives."""
    layered = given.preset is None or "\n  layers:" in _preset(given.preset)
    if found.only is not None and layered and not answers.modules:
        answers = replace(answers, modules=asking.targets(found.only))
    if given.preset is None:
        answers = replace(answers, keep=asking.keep(), every=asking.every())
    return answers


def _found(context: click.Context, given: asking.Source) -> Found:
    """The model that was named, or that a script calls."""
    if not given.model and not given.program:
        return Found(None, {}, "train", "--model FILE.py:CALLABLE")

    from probes.plan.suggestion import suggestion
    from probes.plan.tree import Tree
    from probes.script.named_model import named_model

    if given.model:
        model = named_model(given.model)
        trees = {key: Tree(one) for key, one in (model.items() if isinstance(model, Mapping) else [("", model)])}
        targets = {key: (tree.root.kind, suggestion(tree)) for key, tree in trees.items()}
        return Found(model, targets, "train", f"--model {shlex.quote(given.model)}")
    context.meta[OPTION] = given.program
    seen = watch(context, "init")
    targets = {
        key: (tree.root.kind, suggestion(tree, lambda node, tree=tree: seen.values(tree, node)))  # type: ignore[misc]  # bound now
        for key, tree in seen.trees.items()
    }
    return Found(models(seen), targets, seen.phase, f"{OPTION} {shlex.join(given.program)}")


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
        raise UsageError(f"there is no preset '{preset}'; {nearest(name, preset_names()) or f'known: {known}'}")
    return file_bytes(path).decode()


def _text(preset: str | None, found: Found, answers: Answers) -> str:
    if preset is not None:
        return preset_text(_preset(preset), found.only, answers)
    return text_for(found.targets, answers) if found.targets else plain_text(answers)


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


def _next(out: Path, found: Found, given: asking.Source) -> list[str]:
    """What to type next."""
    spec = shlex.quote(str(out))
    script = shlex.join(given.program) if given.program else "YOUR_SCRIPT.py"
    return [
        click.style("Next:", bold=True),
        f"  probes plan {spec} {found.command}",
        f"  probes run {spec} {script}",
        f"  and change {out}; `probes check {spec}` tells what it thinks of it",
    ]
