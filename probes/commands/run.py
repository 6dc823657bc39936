"""`probes run`: run an unmodified script with probes attached."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from probes.commands.options.specs import changes
from probes.commands.rendering.failure import answer
from probes.errors import UsageError
from probes.provenance.code_files import KEEP
from probes.provenance.data import data_digests
from probes.provenance.own_code import with_functions
from probes.script.program import Program, program_of, unknown_to
from probes.script.progress import Progress
from probes.script.run_request import Command, RunRequest
from probes.script.session import Session
from probes.spec import load_spec

OPTIONS_FIRST = {"allow_interspersed_args": False}  # everything after the script belongs to the script


@click.command(context_settings=OPTIONS_FIRST, options_metavar="[OPTIONS]")
@click.option("-o", "--out", metavar="DIR", help="Run directory, new or empty; default: runs/NAME/RUN-ID.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--set-file", "files", multiple=True, metavar="FILE", help="Read PATH=VALUE lines from this file; --set wins over it.")
@click.option("--allow-code", "code", multiple=True, metavar="FILE", help="Allow transforms of kind `python` to run this file; repeatable.")
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Allow this plug-in to be imported; repeatable.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=TEXT", help="Store a tag in the manifest; repeatable.")
@click.option("--data", "data", multiple=True, metavar="NAME=PATH", help="Record the digest of a data file or directory; repeatable.")
@click.option("--resume", is_flag=True, help="Resume the run in --out if it exists; its next epochs become a new attempt.")
@click.option("--take-over", is_flag=True, help="Resume even if it is unknown whether the process that owns the directory still runs.")
@click.option(
    "--first-epoch",
    type=click.IntRange(0),
    metavar="N",
    help="Number of the first epoch, for a script that resumes from its own checkpoint.",
)
@click.option("--no-sources", is_flag=True, help="Keep no copy of the imported sources next to the run; their digests are recorded.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.argument("spec")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT|-m MODULE [ARGS]...")
def run(
    spec: str,
    words: tuple[str, ...],
    out: str | None,
    overrides: tuple[str, ...],
    files: tuple[str, ...],
    code: tuple[str, ...],
    allowed: tuple[str, ...],
    tags: tuple[str, ...],
    data: tuple[str, ...],
    resume: bool,
    take_over: bool,
    first_epoch: int | None,
    no_sources: bool,
    quiet: bool,
) -> None:
    """Run SCRIPT with the probes of SPEC attached; the script needs no change and gets ARGS.

    Options of `probes run` come before SPEC. The exit code is that of the script, or 1 if the script ends with 0 but the spec
    was not satisfied.
    """
    if no_sources:
        os.environ[KEEP] = "0"
    target = program_of("run", words, spec)
    loaded = with_functions(load_spec(spec, overrides=changes(files, overrides), allow_plugins=allowed), code)
    request = RunRequest(
        loaded,
        out and str(Path(out).absolute()),
        dict(_pair("--tag", tag) for tag in tags),
        data_digests({name: Path(path) for name, path in (_pair("--data", one) for one in data)}),
        resume=resume,
        take_over=take_over,
        first_epoch=first_epoch,
        command=_command(target),
    )
    progress = Progress(quiet=quiet)
    for line in _misplaced(target, spec):
        progress.say(line)
    with progress.line:
        outcome = Session(request, progress).run(target)
    if outcome.failure is not None:
        answer(outcome.failure)
    sys.exit(outcome.code)


def _command(target: Program) -> Command | None:
    """Return how this process was started, if the program is at the end of its command line."""
    words = tuple(sys.orig_argv)
    before = words[: len(words) - len(target.words)]
    program = target.words[: 2 if target.is_module else 1]
    return Command((sys.executable, *before[1:]), program) if words[len(before) :] == target.words and "run" in before else None


def _misplaced(target: Program, spec: str) -> list[str]:
    """Return a line on an option of `probes run` that was given after the script."""
    options = [name for option in run.params for name in option.opts if name.startswith("--")]
    given = unknown_to(target, options)
    if not given:
        return []
    name, sign, _ = given.partition("=")
    at = target.arguments.index(given)
    takes = not sign and not next(option.is_flag for option in run.params if isinstance(option, click.Option) and name in option.opts)
    moved, rest = target.arguments[at : at + 1 + takes], (*target.arguments[:at], *target.arguments[at + 1 + takes :])
    line = shlex.join(["probes", "run", *moved, spec, target.name, *rest])
    return [f"`{name}` is after the script, so `{target.name}` gets it; options of `probes run` come before the spec: {line}"]


def _pair(option: str, text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        form = (
            "NAME=TEXT; write for example `--tag lr=0.1`" if option == "--tag" else "NAME=PATH; write for example `--data train=data/train`"
        )
        raise UsageError(f"`{option} {text}` is not {form}")
    return name, value
