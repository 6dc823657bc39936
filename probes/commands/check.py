"""`probes check`: check specs without a model and without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from probes.commands.options.specs import SKIP_OTHERS, changes, chosen
from probes.commands.rendering.failure import problems_text
from probes.commands.rendering.resolved_text import resolved_text
from probes.errors import Problem, SpecError, StorageError
from probes.spec import LoadedSpec, load_spec

FORMATS = ("text", "json", "github")


@dataclass(frozen=True)
class CheckedSpec:
    """The result of checking one spec.

    Attributes:
        name: the spec, as given on the command line.
        loaded: the spec; None if it has problems.
        problems: all problems.
        code: the exit code for this spec alone.
    """

    name: str
    loaded: LoadedSpec | None = None
    problems: tuple[Problem, ...] = ()
    code: int = 0


@click.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@click.option("--resolved", is_flag=True, help="Print the resolved spec, which is what is hashed, with the origin of each value.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--set-file", "files", multiple=True, metavar="FILE", help="Read PATH=VALUE lines from this file; --set wins over it.")
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Allow this plug-in to be imported; repeatable.")
@click.option("--skip-others", is_flag=True, help=SKIP_OTHERS)
@click.option("--format", "kind", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format.")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.pass_context
def check(
    context: click.Context,
    specs: tuple[str, ...],
    resolved: bool,
    overrides: tuple[str, ...],
    files: tuple[str, ...],
    allowed: tuple[str, ...],
    skip_others: bool,
    kind: str,
    as_json: bool,
) -> None:
    """Check specs and report every problem with its position and what is allowed there.

    SPEC is a file or `preset:NAME`. No model and no torch is needed; `probes plan` checks a spec against a model.

    \b
    --json prints {"ok": ..., "specs": [...]}; each entry has
      spec       the name as given
      ok         true if the spec has no problem
      problems   [{code, message, hint, file, line, column, width, source, path}]
      files      [{name, sha256}] of every file read; only if ok
      identity   hash of everything that decides captured values; only if ok
      resolved   the resolved spec; only if ok and with --resolved
    """  # noqa: D301  # click's mark for a paragraph that is not rewrapped
    texts = changes(files, overrides)
    verdicts = [verdict(name, texts, allowed) for name in chosen(specs, skip_others)]
    if as_json or kind == "json":
        found = {"ok": not any(one.code for one in verdicts), "specs": [plain(one, resolved) for one in verdicts]}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for one in verdicts:
            print_result(one, resolved, kind)
    context.exit(min((one.code for one in verdicts if one.code), default=0))


def verdict(name: str, overrides: tuple[str, ...], allowed: tuple[str, ...] = ()) -> CheckedSpec:
    """Load one spec and collect its problems."""
    try:
        return CheckedSpec(name, load_spec(name, overrides=overrides, allow_plugins=allowed))
    except SpecError as error:
        return CheckedSpec(name, None, error.problems, error.exit_code)
    except StorageError as error:
        return CheckedSpec(name, None, (Problem("missing-file", str(error)),), error.exit_code)


def plain(found: CheckedSpec, resolved: bool) -> dict[str, Any]:
    """Return the result as plain data; its shape is stable within version 1 of the spec."""
    data: dict[str, Any] = {"spec": found.name, "ok": not found.code, "problems": [problem.as_dict() for problem in found.problems]}
    if found.loaded is not None:
        data["files"] = [{"name": name, "sha256": digest} for name, digest in found.loaded.files]
        data["identity"] = found.loaded.identity_hash
        data |= {"resolved": found.loaded.data} if resolved else {}
    return data


def print_result(found: CheckedSpec, resolved: bool, kind: str) -> None:
    """Print a result: `ok` and GitHub annotations on stdout, problems on stderr."""
    if found.loaded is None and kind == "github":
        click.echo("\n".join(annotation(problem, found.name) for problem in found.problems))
    elif found.loaded is None:
        click.echo(problems_text(found.problems), err=True)
    elif resolved:
        click.echo(resolved_text(found.loaded))
    else:
        probes = found.loaded.spec.probes
        off = sum(not probe.enabled for probe in probes.values())
        count = f"{len(probes)} {'probe' if len(probes) == 1 else 'probes'}" + (f", {off} disabled" if off else "")
        click.echo(f"{found.name}: {click.style('ok', fg='green')}, {count}, identity {found.loaded.identity_hash[:12]}")


def annotation(problem: Problem, name: str) -> str:
    """Format a problem as a GitHub workflow command, which GitHub shows in a pull request."""
    where = {"file": problem.file or name}
    if problem.line:
        where |= {"line": str(problem.line), "col": str(problem.column), "endColumn": str(problem.column + problem.width)}
    where["title"] = f"probes {problem.code}"
    places = ",".join(f"{key}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in where.items())
    message = "; ".join(filter(None, (problem.message, problem.hint)))
    return f"::error {places}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
