"""The command line: the table of verbs. A verb's module is imported only when that verb is asked for."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from probes import __version__
from probes.commands.rendering.failure import DEBUG, INTERRUPTED, answer
from probes.errors import nearest


class Verb(NamedTuple):
    """A row of the table.

    Attributes:
        place: `module:function` of its command.
        about: what `probes --help` says of it.
    """

    place: str
    about: str


VERBS: dict[str, dict[str, Verb]] = {
    "Write a spec": {
        "init": Verb("probes.commands.init:init", "A first spec, with targets chosen from a model"),
        "check": Verb("probes.commands.check:check", "Whether specs are right, every problem at its place; needs no model"),
        "fmt": Verb("probes.commands.fmt:fmt", "Specs in one layout, comments kept"),
        "schema": Verb("probes.commands.schema:schema", "The JSON Schema of a spec, for editors"),
        "explain": Verb("probes.commands.explain:explain", "What the code of a problem means, with an example"),
        "plugins": Verb("probes.commands.plugins:plugins", "The kinds that other distributions bring"),
        "tree": Verb("probes.commands.tree:tree", "The modules of a model, and the probes on them"),
        "plan": Verb("probes.commands.plan:plan", "What a spec comes to on a model, before anything runs"),
        "coverage": Verb("probes.commands.coverage:coverage", "Which modules fire in a script, how often, and which never"),
    },
    "Capture": {
        "run": Verb("probes.commands.run:run", "Run an unmodified script with the probes of a spec"),
        "demo": Verb("probes.commands.demo:demo", "A tour on real data, nothing downloaded"),
    },
    "Read back": {
        "ls": Verb("probes.commands.ls:ls", "What a run captured; without RUN, the runs there are"),
        "show": Verb("probes.commands.show:show", "The captures of a series as numbers and a sparkline"),
        "diff": Verb("probes.commands.diff:diff", "Where two runs part ways"),
        "export": Verb("probes.commands.export:export", "Captures as npz or jsonl, or the manifest"),
    },
    "Prove": {
        "verify": Verb("probes.commands.verify:verify", "Whether every byte of a run is as it was sealed"),
        "replay": Verb("probes.commands.replay:replay", "Run a recorded command again and compare"),
        "neutral": Verb("probes.commands.neutral:neutral", "Whether a script computes the same with probes as without"),
        "recover": Verb("probes.commands.recover:recover", "Put in order what a run that died has left behind"),
    },
}
EPILOG = """\b
Exit: 0 fine, 1 differs or does not verify, 2 usage or a bad spec, 3 the environment, 4 a bug.
Completion in the shell: eval "$(_PROBES_COMPLETE=bash_source probes)", or zsh_source, fish_source."""


def verbs() -> dict[str, Verb]:
    """The rows of the table by name."""
    return {name: verb for section in VERBS.values() for name, verb in section.items()}


class Verbs(click.Group):
    """The group of all verbs; what goes wrong in one is answered here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the verbs, in the order of the table."""
        return list(verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, imported now."""
        verb = verbs().get(cmd_name)
        if verb is None:
            return None
        module, _, name = verb.place.partition(":")
        found = getattr(import_module(module), name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words begin with.

        Raises:
            click.UsageError: there is no such verb; the nearest is named.
        """
        if args and args[0] not in verbs() and not args[0].startswith("-"):
            hint = nearest(args[0], verbs()) or "`probes --help` lists them"
            raise click.UsageError(f"'{args[0]}' is not a verb; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing any verb."""
        width = max(map(len, verbs()))
        for title, rows in VERBS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), verb.about) for name, verb in rows.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs and options that begin so, without importing any verb."""
        fitting = [CompletionItem(name, help=verb.about) for name, verb in verbs().items() if name.startswith(incomplete)]
        return [*fitting, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; an error becomes what a person reads and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.UsageError):
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:  # the one boundary where any error becomes an exit code
            ctx.exit(answer(error, debug=bool(ctx.meta.get(DEBUG))))


def _color(context: click.Context, _: click.Parameter, value: str) -> None:
    context.color = {"always": True, "never": False}.get(value, _color_of_environment())


def _color_of_environment() -> bool | None:
    """Whether NO_COLOR or FORCE_COLOR decide; None leaves it to the terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR", "0") not in ("", "0") else None


def _debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[DEBUG] = value


@click.group(cls=Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}, subcommand_metavar="VERB [ARGS]...")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    is_eager=True,
    expose_value=False,
    callback=_color,
    help="auto: on a terminal, unless NO_COLOR or FORCE_COLOR say otherwise.",
)
@click.option("--debug", is_flag=True, envvar="PROBES_DEBUG", expose_value=False, callback=_debug, help="Show tracebacks (PROBES_DEBUG=1).")
@click.version_option(__version__, message="probes %(version)s")
def cli() -> None:
    """Say in YAML which tensors to capture. Run. Prove it later."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    cli(prog_name="probes")
