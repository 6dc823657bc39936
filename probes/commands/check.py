"""`probes check`: whether specs say what specs may say; no model and no torch is needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from probes.commands.options.overrides import changes
from probes.commands.rendering.failure import problems_text
from probes.commands.rendering.resolved_text import resolved_text
from probes.errors import Problem, SpecError, StorageError
from probes.spec import LoadedSpec, load_spec

FORMATS = ("text", "json", "github")


@dataclass(frozen=True)
class Verdict:
    """What was found of one spec.

    Attributes:
        name: the spec as it was named.
        loaded: the spec, where nothing is wrong with it.
        problems: what is wrong.
        code: the exit code it alone would give.
    """

    name: str
    loaded: LoadedSpec | None = None
    problems: tuple[Problem, ...] = ()
    code: int = 0


@click.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@click.option("--resolved", is_flag=True, help="Print what is hashed, each value with where it came from.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--set-file", "files", multiple=True, metavar="FILE", help="A file with one PATH=VALUE a line; before what --set says.")
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Let this plug-in be imported; repeatable.")
@click.option("--format", "kind", type=click.Choice(FORMATS), default="text", show_default=True, help="How the result is printed.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_context
def check(
    context: click.Context,
    specs: tuple[str, ...],
    resolved: bool,
    overrides: tuple[str, ...],
    files: tuple[str, ...],
    allowed: tuple[str, ...],
    kind: str,
    as_json: bool,
) -> None:
    """Check specs: every problem at its place, with what is allowed there.

    SPEC is a file or `preset:NAME`. Nothing is imported but what reads specs; `probes plan` checks against a model.

    \b
    --json prints {"ok": ..., "specs": [one for each SPEC]}, and of each spec
      spec       the name as it was given
      ok         whether nothing is wrong
      problems   [{code, message, hint, file, line, column, width, source, path}]
      files      [{name, sha256}] of every file that was read; only where ok
      identity   hash of what decides about captured values; only where ok
      resolved   the resolved spec; only where ok, with --resolved
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped anew
    texts = changes(files, overrides)
    verdicts = [verdict(name, texts, allowed) for name in specs]
    if as_json or kind == "json":
        found = {"ok": not any(one.code for one in verdicts), "specs": [plain(one, resolved) for one in verdicts]}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for one in verdicts:
            tell(one, resolved, kind)
    context.exit(min((one.code for one in verdicts if one.code), default=0))


def verdict(name: str, overrides: tuple[str, ...], allowed: tuple[str, ...] = ()) -> Verdict:
    """Load one spec and say what is wrong with it."""
    try:
        return Verdict(name, load_spec(name, overrides=overrides, allow_plugins=allowed))
    except SpecError as error:
        return Verdict(name, None, error.problems, error.exit_code)
    except StorageError as error:
        return Verdict(name, None, (Problem("missing-file", str(error)),), error.exit_code)


def plain(found: Verdict, resolved: bool) -> dict[str, Any]:
    """A verdict as data, the same in every release of this version of the spec."""
    data: dict[str, Any] = {"spec": found.name, "ok": not found.code, "problems": [problem.as_dict() for problem in found.problems]}
    if found.loaded is not None:
        data["files"] = [{"name": name, "sha256": digest} for name, digest in found.loaded.files]
        data["identity"] = found.loaded.identity_hash
        data |= {"resolved": found.loaded.data} if resolved else {}
    return data


def tell(found: Verdict, resolved: bool, kind: str) -> None:
    """Print a verdict: what is fine on stdout, problems on stderr, annotations for GitHub on stdout."""
    if found.loaded is None and kind == "github":
        click.echo("\n".join(annotation(problem, found.name) for problem in found.problems))
    elif found.loaded is None:
        click.echo(problems_text(found.problems), err=True)
    elif resolved:
        click.echo(resolved_text(found.loaded))
    else:
        probes = found.loaded.spec.probes
        off = sum(not probe.enabled for probe in probes.values())
        count = f"{len(probes)} {'probe' if len(probes) == 1 else 'probes'}" + (f", {off} switched off" if off else "")
        click.echo(f"{found.name}: {click.style('ok', fg='green')}, {count}, identity {found.loaded.identity_hash[:12]}")


def annotation(problem: Problem, name: str) -> str:
    """A problem as a workflow command that GitHub shows in the diff of a pull request."""
    where = {"file": problem.file or name}
    if problem.line:
        where |= {"line": str(problem.line), "col": str(problem.column), "endColumn": str(problem.column + problem.width)}
    where["title"] = f"probes {problem.code}"
    places = ",".join(f"{key}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in where.items())
    message = "; ".join(filter(None, (problem.message, problem.hint)))
    return f"::error {places}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
