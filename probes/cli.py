"""The command line: the table of verbs. A verb's module is imported only when that verb is used."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from probes import __version__
from probes.commands.rendering.failure import BROKEN_PIPE, DEBUG, INTERRUPTED, answer
from probes.errors import nearest


class Verb(NamedTuple):
    """A row of the table.

    Attributes:
        place: `module:function` of its command.
        about: its line in `probes --help`.
    """

    place: str
    about: str


VERBS: dict[str, dict[str, Verb]] = {
    "Write a spec": {
        "init": Verb("probes.commands.init:init", "Write a first spec, with targets chosen from a model"),
        "check": Verb("probes.commands.check:check", "Check specs and report every problem; needs no model"),
        "fmt": Verb("probes.commands.fmt:fmt", "Format specs and keep their comments"),
        "schema": Verb("probes.commands.schema:schema", "Print the JSON Schema of a spec, for editors"),
        "explain": Verb("probes.commands.explain:explain", "Explain an error code, with an example"),
        "presets": Verb("probes.commands.presets:presets", "List ready-made specs, or show one"),
        "plugins": Verb("probes.commands.plugins:plugins", "List kinds from installed plug-ins"),
        "tree": Verb("probes.commands.tree:tree", "Show the modules of a model, and the probes on them"),
        "plan": Verb("probes.commands.plan:plan", "Show what a spec would capture on a model"),
        "coverage": Verb("probes.commands.coverage:coverage", "Count the calls of every module in a script"),
    },
    "Capture": {
        "run": Verb("probes.commands.run:run", "Run an unmodified script with the probes of a spec"),
        "watch": Verb("probes.commands.watch:watch", "Follow a run while it is written"),
        "upload": Verb("probes.commands.upload:upload", "Copy a run into a remote store, also while it is written"),
        "demo": Verb("probes.commands.demo:demo", "Run an example on real data; downloads nothing"),
    },
    "Read captures": {
        "ls": Verb("probes.commands.ls:ls", "List what a run captured, or all runs"),
        "show": Verb("probes.commands.show:show", "Show one series as numbers and a sparkline"),
        "report": Verb("probes.commands.report:report", "Write a page with heat maps, curves and pictures of runs"),
        "diff": Verb("probes.commands.diff:diff", "Compare two runs and find the first difference"),
        "export": Verb("probes.commands.export:export", "Export captures as Parquet, npz, safetensors and others"),
    },
    "Verify": {
        "verify": Verb("probes.commands.verify:verify", "Check a run against its digests"),
        "anchor": Verb("probes.commands.anchor:anchor", "Keep the last hash of a run in a file or a git tag"),
        "replay": Verb("probes.commands.replay:replay", "Run a recorded command again and compare the captures"),
        "neutral": Verb("probes.commands.neutral:neutral", "Check that probes do not change what a script computes"),
        "recover": Verb("probes.commands.recover:recover", "Seal the journals that a killed run left"),
    },
}
EPILOG = """\b
Exit codes: 0 ok, 1 negative result, 2 usage or spec error, 3 environment, 4 bug in probes, 130 interrupted, 141 nobody reads the output.
Shell completion: eval "$(_PROBES_COMPLETE=bash_source probes)", or zsh_source, fish_source."""


COMPLETE = "_PROBES_COMPLETE"  # set by the shell that requests a completion


def verbs() -> dict[str, Verb]:
    """The rows of the table by name."""
    return {name: verb for section in VERBS.values() for name, verb in section.items()}


class Verbs(click.Group):
    """The group of all verbs; it turns errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the verbs, in the order of the table."""
        return list(verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, imported now; for a completion only its parameters, which are in a table."""
        if ctx.resilient_parsing:
            from probes.commands.completion.table import command_of

            return command_of(cmd_name)
        verb = verbs().get(cmd_name)
        if verb is None:
            return None
        module, _, name = verb.place.partition(":")
        found = getattr(import_module(module), name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with.

        Raises:
            click.UsageError: the verb does not exist; the message names the nearest one.
        """
        if args and args[0] not in verbs() and not args[0].startswith("-"):
            hint = nearest(args[0], verbs()) or "`probes --help` lists them"
            raise click.UsageError(f"`{args[0]}` is not a verb; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing any verb."""
        width = max(map(len, verbs()))
        for title, rows in VERBS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), verb.about) for name, verb in rows.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs and options without importing any verb."""
        fitting = [CompletionItem(name, help=verb.about) for name, verb in verbs().items() if name.startswith(incomplete)]
        return [*fitting, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """Parse the words before the verb, which also prints the help and the version."""
        with _answered(lambda: False):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        with _answered(lambda: bool(ctx.meta.get(DEBUG))):
            return super().invoke(ctx)


@contextmanager
def _answered(debug: Callable[[], bool]) -> Iterator[None]:
    """Turn an error into a message and an exit code.

    Args:
        debug: whether the traceback is shown.
    """
    try:
        yield
    except (click.exceptions.Exit, click.Abort, click.UsageError):
        raise
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError as error:
        raise click.exceptions.Exit(BROKEN_PIPE if _stdout_is_closed() else answer(error, debug=debug())) from None
    except Exception as error:  # the single place where any error becomes an exit code
        raise click.exceptions.Exit(answer(error, debug=debug())) from None


def _stdout_is_closed() -> bool:
    """Whether the reader of stdout has ended, as after `| head`; the interpreter then discards the rest of the output."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    gone = any(event & select.POLLERR for _, event in asked.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def _color(context: click.Context, _: click.Parameter, value: str) -> None:
    context.color = {"always": True, "never": False}.get(value, _color_of_environment())


def _color_of_environment() -> bool | None:
    """Whether NO_COLOR or FORCE_COLOR decides; None leaves it to the terminal."""
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
    help="`auto` colors output on a terminal; NO_COLOR and FORCE_COLOR override it.",
)
@click.option("--debug", is_flag=True, envvar="PROBES_DEBUG", expose_value=False, callback=_debug, help="Show tracebacks (PROBES_DEBUG=1).")
@click.version_option(__version__, message="probes %(version)s")
def cli() -> None:
    """Capture tensors of PyTorch models as a YAML spec says, and verify the captures later."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _open_missing_streams()
    if COMPLETE in os.environ:
        from probes.commands.completion.bash import register

        register()
    cli(prog_name="probes")


def _open_missing_streams() -> None:
    """Open the standard streams that the caller has closed, as a service may: what is printed there is lost, without an error."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))
